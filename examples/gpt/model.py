"""A decoder-only transformer: pre-norm blocks, causal attention, rotary positions, tied input and output embeddings.

Shape suffixes: B batch, T sequence, C model width, H heads, D width of a head, R = D / 2, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

# The embedding shares its weights with the output layer, which wants them small. Scaled up they are of the size of what
# the blocks add, and move further with each update: 120 updates end 0.2 nats lower than without.
EMBEDDING_SCALE = 4.0


@dataclass
class GPTConfig:
    vocab_size: int = 2048
    n_layer: int = 4
    n_head: int = 5
    width: int = 320


def rotary_angles(length: int, pairs: int, device: torch.device) -> torch.Tensor:
    """By how much each pair of a head's channels is turned at each position, radians (T, R)."""
    frequency_R = 10000.0 ** (-torch.arange(pairs, device=device) / pairs)
    return torch.arange(length, device=device)[:, None] * frequency_R


def rotate(x_BHTD: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
    """Turn each pair of channels by its angle."""
    a_BHTR, b_BHTR = x_BHTD.chunk(2, dim=-1)
    return torch.cat((a_BHTR * cos_TR - b_BHTR * sin_TR, a_BHTR * sin_TR + b_BHTR * cos_TR), dim=-1)


class Attention(nn.Module):
    def __init__(self, width: int, n_head: int):
        super().__init__()
        if width % (2 * n_head):
            raise ValueError(f"width {width} is not a multiple of twice n_head {n_head}")
        self.n_head = n_head
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x_BTC: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
        heads_BTHD = (t_BTC.unflatten(-1, (self.n_head, -1)) for t_BTC in self.qkv(x_BTC).chunk(3, dim=-1))
        q_BHTD, k_BHTD, v_BHTD = (t_BTHD.transpose(1, 2) for t_BTHD in heads_BTHD)
        # The products with the fp32 angles are fp32 even under autocast; attention wants one dtype.
        q_BHTD = rotate(q_BHTD, cos_TR, sin_TR).to(v_BHTD.dtype)
        k_BHTD = rotate(k_BHTD, cos_TR, sin_TR).to(v_BHTD.dtype)
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        return self.out(y_BHTD.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, n_head: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, n_head)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x_BTC: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
        x_BTC = x_BTC + self.attn(self.norm1(x_BTC), cos_TR, sin_TR)
        return x_BTC + self.mlp(self.norm2(x_BTC))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.pairs = config.width // config.n_head // 2
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.n_head) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.apply(self._init_weights)
        self.head.weight = self.tokens.weight

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding | nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, Block):
            # Called after the block's own children: the layers that write to the residual stream start smaller, so that
            # its variance does not grow with depth.
            for layer in (module.attn.out, module.mlp[-1]):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * self.config.n_layer))

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V) for the token after each position."""
        angle_TR = rotary_angles(ids_BT.shape[1], self.pairs, ids_BT.device)
        cos_TR, sin_TR = angle_TR.cos(), angle_TR.sin()
        x_BTC = self.tokens(ids_BT) * EMBEDDING_SCALE
        for block in self.blocks:
            x_BTC = block(x_BTC, cos_TR, sin_TR)
        return self.head(self.norm(x_BTC))

    def num_params(self) -> int:
        return sum(p.numel() for p in self.parameters())


@torch.no_grad()
def generate(
    model: nn.Module, ids: list[int], n_new: int, seq_len: int, device: torch.device, temperature=0.5, top_k=40, seed=0
) -> list[int]:
    """Append n_new sampled tokens to ids; the model sees the last seq_len of them.

    The draw is made on the host from its own generator, so that every rank of a sharded model draws the same token.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = list(ids)
    for _ in range(n_new):
        ids_BT = torch.tensor([ids[-seq_len:]], device=device)
        logits_V = model(ids_BT)[0, -1].float().cpu() / temperature
        top_K, index_K = logits_V.topk(min(top_k, logits_V.numel()))
        ids.append(int(index_K[torch.multinomial(top_K.softmax(0), 1, generator=generator)]))
    return ids
