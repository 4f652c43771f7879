"""GradientAccumulation: one optimizer step over several batches, equal to one step over their union."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from torch_cann.recipes.train import _checks
from torch_cann.recipes.train.data_loader import map_tensors, tensors_of


class GradientAccumulation:
    """Sums gradients over micro-batches and synchronises ranks only in the last.

        accumulation = GradientAccumulation(4)
        for batches in accumulation.groups(loader):
            for batch, weight in accumulation.weighted(batches, model):
                (loss_of(model, batch) * weight).backward()
            optimizer.step()
            optimizer.zero_grad()

    A micro-batch's weight is its share of the group's samples, so the gradient is that of the mean over all samples of
    the group, whether or not the last one is smaller. What the equality needs: losses that are means over samples, and
    no layer that looks across samples (batch norm).

    Args:
        steps: micro-batches of a step.
    """

    def __init__(self, steps: int) -> None:
        self.steps = _checks.whole("steps", steps, 1)

    def groups(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        """Lists of ``steps`` batches each; the last one of an epoch may be shorter."""
        batches = iter(loader)
        while group := list(islice(batches, self.steps)):
            yield group

    def split(self, batch: Any) -> list[Any]:
        """One batch as up to ``steps`` micro-batches along dimension 0 of its tensors, without copying.

        Raises:
            ValueError: if the batch has no tensor, or tensors of different lengths.
        """
        lengths = {t.shape[0] if t.dim() else 0 for t in tensors_of(batch)}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                f"the batch's tensors must have one length, at least 1, in dimension 0, but have {sorted(lengths)}"
            )
        size = -(-lengths.pop() // self.steps)
        pieces = [t.split(size) for t in tensors_of(batch)]
        return [_refill(batch, iter(piece)) for piece in zip(*pieces, strict=True)]

    def weighted(self, batches: list[Any], model: nn.Module | None = None) -> Iterator[tuple[Any, float]]:
        """Each micro-batch with its weight; ``model``'s gradients are synchronised between ranks in the last only."""
        sizes = [_samples(batch) for batch in batches]
        for position, batch in enumerate(batches):
            with synchronising(model, position == len(batches) - 1):
                yield batch, sizes[position] / sum(sizes)


def _samples(batch: Any) -> int:
    tensors = tensors_of(batch)
    return tensors[0].shape[0] if tensors and tensors[0].dim() else 1


def _refill(batch: Any, tensors: Iterator[torch.Tensor]) -> Any:
    return map_tensors(lambda _: next(tensors), batch)


@contextmanager
def synchronising(model: nn.Module | None, synchronise: bool) -> Iterator[None]:
    """Backward passes inside reduce gradients between ranks, or only sum them up here, for DDP and FSDP2 models."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(synchronise)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
    elif not synchronise and hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        yield
