"""How far a loader has been read, and how to get there again: its own state, or by reading and dropping."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from torch_cann.recipes.train.config import ConfigError
from torch_cann.recipes.train.data_loader import OptimizedDataLoader


def shared_loader(loader: Any, what: str, rank: int, ranks: int) -> Any:
    """``loader``, which gives this rank its share of the data: an OptimizedDataLoader is told, others are checked.

    Raises:
        ConfigError: for a DataLoader whose sampler is of another rank or number of ranks.
    """
    if isinstance(loader, OptimizedDataLoader):
        loader.share_among(rank, ranks)
        return loader
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    given = getattr(loader.sampler, "rank", 0), getattr(loader.sampler, "num_replicas", 1)
    if given != (rank, ranks):
        raise ConfigError(
            f"{what}: rank {rank} of the {ranks} that share the data would read part {given[0]} of {given[1]}; use an "
            "OptimizedDataLoader, or a DistributedSampler with that rank and num_replicas"
        )
    return loader


class LoaderPosition:
    """Epochs of ``loader``, which may be gone on with in the middle.

    A loader with state_dict() and load_state_dict() does that itself. Of another one the batches before are read again
    and dropped, with the random state that the epoch began with, so that a shuffle is the same.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._begun: torch.Tensor | None = None
        self._batches = 0
        self._resumes = False

    def epoch(self, number: int) -> Iterator[Any]:
        """Batches of epoch ``number``, or of what is left of it after load_state_dict()."""
        if self._stateful:
            if not self._resumes and hasattr(self.loader, "set_epoch"):
                self.loader.set_epoch(number)
            self._resumes = False
            yield from self.loader
            return
        sampler = getattr(self.loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(number)
        batches = self._again() if self._resumes else self._afresh()
        for batch in batches:
            self._batches += 1
            yield batch
        self._batches = 0

    def _afresh(self) -> Iterator[Any]:
        self._begun, self._batches = torch.get_rng_state(), 0
        return iter(self.loader)

    def _again(self) -> Iterator[Any]:
        self._resumes = False
        now = torch.get_rng_state()
        torch.set_rng_state(self._begun)
        batches = iter(self.loader)
        for _ in range(self._batches):
            next(batches)
        torch.set_rng_state(now)
        return batches

    def state_dict(self) -> dict[str, Any]:
        if self._stateful:
            return {"loader": self.loader.state_dict()}
        return {"batches": self._batches, "begun": self._begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._stateful != ("loader" in state):
            raise ValueError("the checkpoint is of another kind of loader: use the one it was made with")
        if self._stateful:
            self.loader.load_state_dict(state["loader"])
            self._resumes = True
        else:
            self._batches, self._begun = state["batches"], state["begun"]
            self._resumes = self._batches > 0
