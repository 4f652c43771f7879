"""What this machine can show by its own clock: a loader that prefetches, and training that ends at the same loss."""

import time
from collections.abc import Iterable

import torch
import torch_npu  # noqa: F401
from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader
from torch import nn
from torch.utils.data import DataLoader, Dataset

READING = 0.004  # seconds a sample takes to read


class SlowDataset(Dataset):
    """Samples that take time to read, as from a network file system."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(READING)
        generator = torch.Generator().manual_seed(index)
        sample = torch.randn(256, generator=generator)
        return sample, sample.roll(1)


def _epoch(loader: Iterable, step: nn.Module) -> float:
    begin = time.perf_counter()
    for inputs, target in loader:
        inputs, target = inputs.npu(non_blocking=True), target.npu(non_blocking=True)
        (step(inputs) - target).square().mean().backward()
        time.sleep(4 * READING)  # the rest of a step, in which a device is busy and the host is not
    torch.npu.synchronize()
    return time.perf_counter() - begin


def loader_gain() -> float:
    """Time of an epoch with a plain DataLoader over that with OptimizedDataLoader, where reading takes most of it."""
    step = nn.Linear(256, 256).npu()
    plain = DataLoader(SlowDataset(), batch_size=8)
    optimized = OptimizedDataLoader(SlowDataset(), batch_size=8, num_workers=4, pin_memory=True, prefetch_factor=4)
    return _epoch(plain, step) / _epoch(optimized, step)


def _data(samples: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of a task that can be learned: which of 16 directions a point lies in, through a fixed random map."""
    generator = torch.Generator().manual_seed(7)
    to_class = torch.randn(64, 16, generator=generator)
    points = torch.randn(samples, 64, generator=generator)
    return list(zip(points.split(64), (points @ to_class).argmax(1).split(64), strict=True))


def _model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 16))


@torch.no_grad()
def _validation(model: nn.Module, batches: list) -> float:
    return sum(nn.functional.cross_entropy(model(x.npu()).float(), y.npu()).item() for x, y in batches) / len(batches)


def final_losses(epochs: int = 8) -> tuple[float, float]:
    """Validation loss after the same steps: of a plain float32 loop, and of AdvancedTrainer with the recipes."""
    batches = _data(64 * 64)
    training, held_back = batches[:56], batches[56:]

    model = _model().npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for x, y in training:
            nn.functional.cross_entropy(model(x.npu()), y.npu()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    plain = _validation(model, held_back)

    model = _model().npu()
    trainer = AdvancedTrainer(
        model,
        torch.optim.AdamW(model.parameters(), lr=3e-3),
        training,
        amp_config={"enabled": True, "opt_level": "O2", "dtype": "bfloat16"},
        memory_config={"checkpointing": True, "activation_compression": True},
        clip_norm=1.0,
        console=False,
    )
    trainer.train(epochs=epochs)
    model.eval()
    with torch.autocast("npu", torch.bfloat16):
        return plain, _validation(model, held_back)
