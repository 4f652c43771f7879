"""The GPT of these examples. Shape suffixes: B batch, T sequence, C hidden size, H heads, D width of a head."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

HEAD_WIDTH = 64


class TransformerLayer(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int | None = None, checkpointing: bool = False):
        super().__init__()
        self.num_heads = num_heads or max(1, hidden_size // HEAD_WIDTH)
        if hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of num_heads {self.num_heads}")
        self.checkpointing = checkpointing
        self.norm1 = nn.LayerNorm(hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.ffn = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size), nn.GELU(), nn.Linear(4 * hidden_size, hidden_size)
        )

    def attention(self, x_BTC: torch.Tensor) -> torch.Tensor:
        q_BHTD, k_BHTD, v_BHTD = (
            t_BTC.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t_BTC in self.qkv(x_BTC).chunk(3, dim=-1)
        )
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        return self.out(y_BHTD.transpose(1, 2).flatten(2))

    def _forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        x_BTC = x_BTC + self.attention(self.norm1(x_BTC))
        return x_BTC + self.ffn(self.norm2(x_BTC))

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        if self.checkpointing and self.training:
            # Activations inside the layer are computed again in backward. use_reentrant=False is what PyTorch
            # recommends, and the only form that works with DDP and FSDP without restrictions.
            return checkpoint(self._forward, x_BTC, use_reentrant=False)
        return self._forward(x_BTC)


class GPTModel(nn.Module):
    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int | None = None,
        max_length: int = 1024,
        checkpointing: bool = False,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.positions = nn.Embedding(max_length, hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(hidden_size, num_heads, checkpointing) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, vocabulary)."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x_BTC = self.embedding(input_ids) + self.positions(positions)
        for layer in self.layers:
            x_BTC = layer(x_BTC)
        return self.lm_head(self.norm(x_BTC))


def language_model_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.CrossEntropyLoss()(logits.view(-1, logits.size(-1)), labels.view(-1))
