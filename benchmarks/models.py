"""The models whose training step is timed, each with a batch of made-up data."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

# A model and its batch (inputs, targets), both on the CPU; the loss is the cross entropy of the model's logits.
Setup = tuple[nn.Module, torch.Tensor, torch.Tensor]


class _Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        batch, time, width = x_BTD.shape
        q, k, v = self.qkv(self.attention_norm(x_BTD)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class _Gpt(nn.Module):
    """A decoder-only transformer with learned positions."""

    def __init__(self, vocabulary: int, time: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("order", torch.arange(time))

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = self.blocks(self.tokens(tokens_BT) + self.positions(self.order))
        return self.head(self.norm(x_BTD)).flatten(0, 1)


class _Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the (possibly strided) input."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        same = channels_in == channels and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x_NCHW) + self.shortcut(x_NCHW))


def gpt() -> Setup:
    """6 layers of width 384, 256 tokens, one sequence: 12 M parameters, bound by matrix products."""
    tokens = torch.randint(2048, (1, 257))
    return _Gpt(vocabulary=2048, time=256, width=384, heads=6, layers=6), tokens[:, :-1], tokens[0, 1:]


def convnet() -> Setup:
    """An 18-layer residual network of width 32 on 16 images of 32x32 pixels."""
    widths = [(32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    channels = 32
    for width, stride in widths:
        layers.append(_Residual(channels, width, stride))
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers), torch.randn(16, 3, 32, 32), torch.randint(10, (16,))


def mlp() -> Setup:
    """Four linear layers of width 64 on a batch of 4: bound by the overhead of every call."""
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10)), torch.randn(4, 64), torch.randint(10, (4,))


MODELS: dict[str, Callable[[], Setup]] = {"gpt": gpt, "convnet": convnet, "mlp": mlp}
