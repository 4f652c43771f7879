"""OptimizedDataLoader: torch's DataLoader, with batches already on the device and a place to go on from."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, Sampler

from torch_cann.recipes.train import _checks
from torch_cann.recipes.train._device import resolve_device
from torch_cann.recipes.train.device_prefetch import DevicePrefetcher
from torch_cann.recipes.train.sampler import ResumableSampler

_IMAGES = {4: torch.channels_last, 5: torch.channels_last_3d}
_NEED_WORKERS = ("persistent_workers", "timeout", "multiprocessing_context", "worker_init_fn")


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    """``batch`` with ``function`` applied to each tensor in its mappings, lists, tuples and named tuples."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        mapped = {key: map_tensors(function, value) for key, value in batch.items()}
        return mapped if isinstance(batch, dict) and type(batch) is dict else type(batch)(mapped)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, item) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_tensors(function, item) for item in batch)
    return batch


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """The tensors in ``batch``, in order."""
    found: list[torch.Tensor] = []

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(remember, batch)
    return found


class _SkipFirst(Sampler):
    """A sampler of the user's, without its first ``start`` indices."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.start = 0

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.start, None)

    def __len__(self) -> int:
        return len(self.sampler)


class OptimizedDataLoader:
    """Batches of ``dataset`` on the device, fetched, converted and copied while the last one is computed with.

    Iterating starts an epoch: the samples of (seed, epoch) in this rank's share, the same as DistributedSampler's. The
    next iteration is the next epoch. state_dict() says how many batches have been handed out, not fetched; after
    load_state_dict() the next iteration goes on behind them, also with another number of ranks or batch size.

    Not part of the state: random numbers that the dataset itself draws. Derive them from the index if an epoch that is
    gone on with must see the same ones.

    Args:
        dataset: map-style, or an IterableDataset, whose first batches are then read and dropped when going on.
        batch_size: samples of a batch of this rank.
        num_workers: processes that load; 0 loads in the prefetching thread.
        pin_memory: through pinned host memory, which lets hardware copy asynchronously; ignored on the CPU.
        prefetch_factor: batches that each worker keeps ready; None is PyTorch's default. Without workers it is the
            number of batches that the thread keeps ready.
        device: where batches go; None is the current device of the accelerator.
        dtype: of floating point tensors. "auto" turns float64, which is what numpy makes and no cube core computes,
            into float32; None leaves all as they are; a dtype, or its name, converts all.
        memory_format: "auto" stores floating point tensors of 4 and 5 dimensions as channels_last, which convolutions
            prefer but ``view(n, -1)`` of the batch refuses, hence not the default; None leaves it.
        device_prefetch: batches on the device ahead of the one in use; 0 copies when asked, without a thread.
        shuffle: a new order in each epoch. Not with ``sampler`` or an IterableDataset.
        seed: of the order.
        sampler: indices of this rank, instead of the own order; it must give the same ones when asked again. Its
            set_epoch() is called where it has one.
        rank, world_size: of the ranks that share the dataset; None asks torch.distributed, 0 and 1 without it.
        **options: drop_last, collate_fn and others of torch.utils.data.DataLoader.

    Raises:
        TypeError, ValueError: for an argument out of its range, or two that exclude each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        num_workers: int = 0,
        pin_memory: bool = True,
        prefetch_factor: int | None = None,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | str | None = "auto",
        memory_format: str | torch.memory_format | None = None,
        device_prefetch: int = 2,
        shuffle: bool = False,
        seed: int = 0,
        sampler: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        self.batch_size = _checks.whole("batch_size", batch_size, 1)
        self.device = resolve_device(device)
        self._dtype = (
            dtype
            if dtype in (None, "auto")
            else _checks.float_dtype("dtype", dtype, (torch.float32, torch.float16, torch.bfloat16, torch.float64))
        )
        if memory_format not in (None, "auto", *_IMAGES.values()):
            raise ValueError(f"memory_format must be None, 'auto' or a channels_last format, but is {memory_format!r}")
        self._memory_format = memory_format
        self._depth = _checks.whole("device_prefetch", device_prefetch, 0)
        _checks.whole("num_workers", num_workers, 0)
        if prefetch_factor is not None:
            _checks.whole("prefetch_factor", prefetch_factor, 1)
        if num_workers == 0:
            self._depth = max(self._depth, prefetch_factor or 0) if self._depth else 0
            for name in _NEED_WORKERS:
                if options.get(name):
                    raise ValueError(f"{name} needs num_workers of at least 1, but it is 0")
        self._pin = bool(pin_memory) and self.device.type != "cpu"
        self._iterable = isinstance(dataset, IterableDataset)
        self._set_place_among_ranks(rank, world_size)
        self._sampler = self._make_sampler(shuffle, seed, sampler, options)
        self._loader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self._sampler,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor if num_workers else None,
            generator=torch.Generator(),
            **options,
        )
        self._seed = seed
        self.epoch = 0
        self._samples = 0  # of all ranks, handed out in this epoch
        self._resumes = False

    def _set_place_among_ranks(self, rank: int | None, world_size: int | None) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank and world_size belong together, but are {rank!r} and {world_size!r}")
        if rank is None:
            running = dist.is_available() and dist.is_initialized()
            rank, world_size = (dist.get_rank(), dist.get_world_size()) if running else (0, 1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, but is {rank}")
        self.rank, self.world_size = rank, world_size

    def _make_sampler(self, shuffle: bool, seed: int, sampler: Any, options: dict[str, Any]) -> Any:
        for name in ("batch_sampler", "generator"):
            if name in options:
                raise ValueError(f"{name} has no place here: give batch_size and sampler, or shuffle and seed")
        if self._iterable and (shuffle or sampler is not None):
            raise ValueError("an IterableDataset sets its own order: shuffle and sampler must not be given")
        if shuffle and sampler is not None:
            raise ValueError("shuffle and sampler exclude each other: the sampler sets the order")
        if self._iterable:
            return None
        if sampler is not None:
            return _SkipFirst(sampler)
        return ResumableSampler(
            self.dataset, shuffle, seed, self.rank, self.world_size, bool(options.get("drop_last", False))
        )

    def share_among(self, rank: int, world_size: int) -> None:
        """Changes this rank's place among those that share the dataset, for the next iteration.

        A sampler of the user's, or an IterableDataset, still says itself what this rank reads.
        """
        self._set_place_among_ranks(rank, world_size)
        if isinstance(self._sampler, ResumableSampler):
            self._sampler.rank, self._sampler.world_size = rank, world_size

    # --- batches ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if not self._resumes and self._samples:  # the last epoch was left before its end
            self._begin_epoch(self.epoch + 1)
        self._resumes = False
        skipped = self._seek()
        self._loader.generator.manual_seed(self._seed + self.epoch)
        return self._batches(iter(self._loader), skipped)

    def _seek(self) -> int:
        """Sets the sampler to what is left of the epoch; returns how many batches must be read and dropped."""
        share = self._samples // self.world_size
        if self._iterable:
            return share // self.batch_size
        if isinstance(self._sampler, ResumableSampler):
            self._sampler.epoch, self._sampler.start = self.epoch, self._samples
        else:
            self._sampler.start = share
            if hasattr(self._sampler.sampler, "set_epoch"):
                self._sampler.sampler.set_epoch(self.epoch)
        return 0

    def _batches(self, batches: Iterator[Any], skipped: int) -> Iterator[Any]:
        host = islice(batches, skipped, None)
        if self._depth:
            placed: Any = DevicePrefetcher(host, self._place, tensors_of, self.device, self._depth)
        else:
            placed = map(self._place, host)
        for batch in placed:
            self._samples += self.batch_size * self.world_size
            yield batch
        self._begin_epoch(self.epoch + 1)

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self._samples = epoch, 0

    def _place(self, batch: Any) -> Any:
        """``batch`` on the device, in the dtype and format asked for."""
        return map_tensors(self._place_tensor, batch)

    def _place_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        pinned = tensor.pin_memory() if self._pin and tensor.device.type == "cpu" else tensor
        tensor = pinned.to(self.device, non_blocking=self._pin)
        if not tensor.is_floating_point():
            return tensor
        dtype = self._dtype
        if dtype == "auto":
            dtype = torch.float32 if tensor.dtype == torch.float64 else tensor.dtype
        layout = self._memory_format
        if layout == "auto":
            layout = _IMAGES.get(tensor.dim())
        elif layout is not None and _IMAGES.get(tensor.dim()) != layout:
            layout = None  # a format is of one number of dimensions
        return tensor.to(dtype=dtype or tensor.dtype, memory_format=layout or torch.preserve_format)

    # --- where it is --------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``, from its beginning."""
        self._begin_epoch(_checks.whole("epoch", epoch, 0))

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many samples of it all ranks together have been handed."""
        state = {"epoch": self.epoch, "samples": self._samples, "seed": self._seed}
        return state if self._iterable else {**state, "dataset_size": len(self.dataset)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Makes the next iteration go on where ``state`` was taken.

        Raises:
            ValueError: if the state is of another seed or dataset, or of samples that this number of ranks cannot have
                been handed in whole batches.
        """
        for name, ours in self.state_dict().items():
            if name not in state:
                raise ValueError(f"the state of a loader has no {name!r}; it has {', '.join(map(repr, state))}")
            if name in ("seed", "dataset_size") and state[name] != ours:
                raise ValueError(f"the state is of {name} {state[name]}, but this loader's is {ours}")
        together = self.batch_size * self.world_size
        if not isinstance(self._sampler, ResumableSampler) and state["samples"] % together:
            raise ValueError(
                f"{state['samples']} samples were read, no whole number of batches of {self.batch_size} on "
                f"{self.world_size} ranks; use the batch size and number of ranks of the state"
            )
        self.epoch, self._samples, self._resumes = state["epoch"], state["samples"], True
