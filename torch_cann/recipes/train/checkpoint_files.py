"""Checkpoints on disk: a folder a step, complete or not there at all, readable by any number of ranks."""

import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

_NAME = re.compile(r"step-(\d{8})")


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """This process among all; 0 without a process group."""
    return dist.get_rank() if _distributed() else 0


def _barrier() -> None:
    if _distributed():
        dist.barrier()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without PyTorch's warning that there is but one process, which is as it should be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


class CheckpointFiles:
    """The checkpoints in ``folder``, the last ``keep`` of them.

    A checkpoint holds tensors by name, in PyTorch's distributed format, in which a shard is found again by any number
    of ranks; ``run.pt``, what is the same for all ranks; and ``rank-N.pt``, what is each rank's own. It is written into
    a folder of another name, which is renamed when all of it is on disk: a run killed at any moment leaves the last
    complete checkpoint behind. All ranks call save() and load() together.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = Path(folder)
        self._keep = keep

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name)))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, step: int, tensors: dict[str, torch.Tensor], run: dict[str, Any], own: dict[str, Any]) -> Path:
        """Writes the checkpoint of ``step``; one that is there already is left as it is."""
        final, partial = self.path(step), self.folder / f"partial-{step:08d}"
        if final.exists():
            return final
        if rank() == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        _barrier()
        with _quietly():
            dcp.save(tensors, storage_writer=FileSystemWriter(partial, sync_files=True), no_dist=not _distributed())
        _write(partial / f"rank-{rank()}.pt", own)
        if rank() == 0:
            _write(partial / "run.pt", run)
        _barrier()
        if rank() == 0:
            _sync_folder(partial)
            os.rename(partial, final)
            _sync_folder(self.folder)
            for old in self.steps()[: -self._keep]:
                shutil.rmtree(self.path(old))
        _barrier()
        return final

    def names(self, step: int) -> dict[str, Any]:
        """What is known of each tensor without reading it: size and properties by name."""
        return FileSystemReader(self.path(step)).read_metadata().state_dict_metadata

    def load(self, step: int, tensors: dict[str, torch.Tensor]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Reads into ``tensors``, in place; returns ``run``, and this rank's own part if its rank had one.

        Raises:
            RuntimeError: naming tensors that the checkpoint does not have.
        """
        missing = sorted(set(tensors) - set(self.names(step)))
        if missing:
            raise RuntimeError(
                f"{self.path(step)} has no {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}: it is of "
                "another model or optimizer"
            )
        with _quietly():
            dcp.load(tensors, storage_reader=FileSystemReader(self.path(step)), no_dist=not _distributed())
        own = self.path(step) / f"rank-{rank()}.pt"
        return _read(self.path(step) / "run.pt"), _read(own) if own.exists() else None


def _write(path: Path, value: Any) -> None:
    with path.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
