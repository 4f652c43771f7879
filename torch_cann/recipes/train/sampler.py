"""The order of samples as a pure function of (seed, epoch), shared out to ranks, and left off at any point."""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class ResumableSampler(Sampler[int]):
    """Indices of this rank in one epoch, from sample ``start`` of the epoch's order on.

    The order and the shares are those of torch.utils.data.DistributedSampler: a permutation from ``seed + epoch``,
    dealt out one by one, filled up with the first samples so that all ranks get equally many. ``start`` counts samples
    of all ranks, so that an epoch begun by some number of ranks can be finished by another.

    Args:
        dataset: anything with a length.
        rank, world_size: this rank's place among those that share the dataset.
    """

    def __init__(self, dataset: Sized, shuffle: bool, seed: int, rank: int, world_size: int, drop_last: bool) -> None:
        self.size = len(dataset)
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last
        self.epoch = 0
        self.start = 0

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.size))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self.size, generator=generator).tolist()

    def _share(self, samples: int) -> int:
        """How many of ``samples`` samples each rank gets."""
        return samples // self.world_size if self.drop_last else -(-samples // self.world_size)

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        rest = order[self.start :]
        total = self._share(len(rest)) * self.world_size
        while len(rest) < total:
            rest += order[: total - len(rest)]
        return iter(rest[self.rank : total : self.world_size])

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch, wherever the next one starts."""
        return self._share(self.size)
