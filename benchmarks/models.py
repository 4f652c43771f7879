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
        x_BTD = self.blocks(self.tokens(tokens_BT) + self.positions(self.order[: tokens_BT.shape[1]]))
        return self.head(self.norm(x_BTD)).flatten(0, 1)


class _Encoder(nn.Module):
    """A post-norm transformer encoder with dropout, as BERT has it; its head predicts every token."""

    def __init__(self, vocabulary: int, time: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("order", torch.arange(time))

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = self.norm(self.tokens(tokens_BT) + self.positions(self.order))
        return self.head(self.layers(x_BTD)).flatten(0, 1)


class _GatedBlock(nn.Module):
    """A block as Llama has it: RMS norm, rotary positions, grouped keys and values, SwiGLU, no biases."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        size = width // heads
        self.query, self.key, self.value = (
            nn.Linear(width, count * size, bias=False) for count in (heads, groups, groups)
        )
        self.project = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BTD: torch.Tensor, cos_TE: torch.Tensor, sin_TE: torch.Tensor) -> torch.Tensor:
        batch, time, width = x_BTD.shape

        def split(projection: nn.Linear, heads: int) -> torch.Tensor:
            return projection(normal_BTD).view(batch, time, heads, -1).transpose(1, 2)

        def rotate(x_BHTE: torch.Tensor) -> torch.Tensor:
            first, second = x_BHTE.chunk(2, -1)
            return x_BHTE * cos_TE + torch.cat((-second, first), -1) * sin_TE

        normal_BTD = self.attention_norm(x_BTD)
        q, k = rotate(split(self.query, self.heads)), rotate(split(self.key, self.groups))
        v = split(self.value, self.groups)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x_BTD = x_BTD + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        normal_BTD = self.mlp_norm(x_BTD)
        return x_BTD + self.down(F.silu(self.gate(normal_BTD)) * self.up(normal_BTD))


class _Llama(nn.Module):
    """A decoder of such blocks."""

    def __init__(self, vocabulary: int, time: int, width: int, heads: int, groups: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(_GatedBlock(width, heads, groups, 8 * width // 3) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.arange(time)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("cos_TE", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin_TE", torch.cat((angles, angles), -1).sin())

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = self.tokens(tokens_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, self.cos_TE, self.sin_TE)
        return self.head(self.norm(x_BTD)).flatten(0, 1)


class _VisionTransformer(nn.Module):
    """Patches of an image through pre-norm blocks, averaged and classified."""

    def __init__(self, image: int, patch: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros((image // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        x_NTD = self.patches(x_NCHW).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.layers(x_NTD).mean(1))


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


def bert() -> Setup:
    """4 encoder layers of width 256 with dropout, 4 sequences of 128 tokens; the dropout's losses differ by device."""
    tokens = torch.randint(4096, (4, 128))
    return _Encoder(vocabulary=4096, time=128, width=256, heads=4, layers=4), tokens, tokens.flatten()


def llama() -> Setup:
    """4 layers of width 384, 6 heads that share 2 keys, 256 tokens."""
    tokens = torch.randint(2048, (1, 257))
    model = _Llama(vocabulary=2048, time=256, width=384, heads=6, groups=2, layers=4)
    return model, tokens[:, :-1], tokens[0, 1:]


def vit() -> Setup:
    """4 layers of width 192 on 8 images of 64x64 pixels in patches of 8."""
    model = _VisionTransformer(image=64, patch=8, width=192, heads=3, layers=4, classes=100)
    return model, torch.randn(8, 3, 64, 64), torch.randint(100, (8,))


MODELS: dict[str, Callable[[], Setup]] = {
    "gpt": gpt, "bert": bert, "llama": llama, "vit": vit, "convnet": convnet, "mlp": mlp,
}  # fmt: skip
