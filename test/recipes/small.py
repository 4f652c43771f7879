"""Small models and data for the tests of this folder."""

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

WIDTH, CLASSES = 16, 4


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


def classifier(blocks: int = 4, dropout: float = 0.0, seed: int = 0) -> nn.Sequential:
    """(n, WIDTH) -> (n, CLASSES), the same weights for the same seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block(dropout) for _ in range(blocks)), nn.Linear(WIDTH, CLASSES))


def points(samples: int = 64, seed: int = 1) -> TensorDataset:
    """Points (WIDTH) and the class (CLASSES) of each: learnable."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, WIDTH, generator=generator)
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


class Numbers(Dataset):
    """The numbers from 0 on, each as a tensor."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)
