"""What OptimizedDataLoader gains where loading is work: documents that are decompressed and cut into tokens.

python examples/claims/loading.py

prints the times of an epoch, by this machine's clock, as one JSON object: seconds by loader, medians of interleaved
rounds.
"""

import json
import os
import re
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import torch
import torch_npu  # noqa: F401
from cann.recipes.train import OptimizedDataLoader
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, TOKENS, VOCABULARY, WIDTH = 8, 128, 1024, 64
WORKERS, ROUNDS = 2, 3
CHUNK = 16384  # bytes of a document; what exceeds TOKENS is read and dropped


class Documents(Dataset):
    """Source text of Python's standard library in compressed pieces; a sample's tokens are words by their checksum."""

    def __init__(self, count: int = 192) -> None:
        text = b"".join(file.read_bytes() for file in sorted(Path(os.__file__).parent.glob("*.py")))
        pieces = [text[start : start + CHUNK] for start in range(0, len(text) - CHUNK, CHUNK)][:count]
        self._compressed = [zlib.compress(piece, 9) for piece in pieces]

    def __len__(self) -> int:
        return len(self._compressed)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        words = re.findall(rb"\w+|\s+|[^\w\s]", zlib.decompress(self._compressed[index]))
        tokens = torch.tensor([zlib.crc32(word) % VOCABULARY for word in words])
        tokens = nn.functional.pad(tokens, (0, max(0, TOKENS + 1 - len(tokens))))
        return tokens[:TOKENS], tokens[1 : TOKENS + 1]


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, target: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(inputs).flatten(0, 1), target.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def _epoch(loader: Iterable, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Seconds of the batches after the first, by when worker processes have started."""
    begin = 0.0
    for position, (inputs, target) in enumerate(loader):
        _step(model, optimizer, inputs.npu(non_blocking=True), target.npu(non_blocking=True))
        if position == 0:
            begin = time.perf_counter()
    torch.npu.synchronize()
    return time.perf_counter() - begin


def epoch_times() -> dict[str, float]:
    """Seconds of an epoch with each loader, and with the batches in memory already, which none can beat."""
    torch.set_num_threads(1)  # the other cores are the workers'
    dataset = Documents()
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())
    model = model.append(nn.Linear(WIDTH, VOCABULARY)).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    loaders = {
        "plain": DataLoader(dataset, BATCH),
        "workers": DataLoader(dataset, BATCH, num_workers=WORKERS, prefetch_factor=4),
        "optimized": OptimizedDataLoader(dataset, BATCH, num_workers=WORKERS, pin_memory=True, prefetch_factor=4),
        "in memory": list(DataLoader(dataset, BATCH)),
    }
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(ROUNDS):
        for name, loader in loaders.items():
            times[name].append(_epoch(loader, model, optimizer))
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    print(json.dumps(epoch_times()))
