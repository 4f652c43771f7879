"""Checkpoints of a dry run: files that say which tensors there were, not gigabytes of what nobody computed."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_cann import _C
from torch_cann.plan.host_copies import HostCopy
from torch_cann.plan.values import Assumptions

_sim = _C._sim
_MARK = "npu-plan: a checkpoint without values"
_LARGEST_NOTE = 1 << 24  # bytes; the names and sizes of a hundred thousand tensors


def _has_no_values(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.device.type == "npu" or isinstance(value, HostCopy))


def _without_values(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if _has_no_values(value) else value


def _is_note(loaded: Any) -> bool:
    return isinstance(loaded, dict) and _MARK in loaded


class Checkpoints:
    """torch.save and torch.load of a dry run. Once per process: install() replaces them."""

    def __init__(self, assumptions: Assumptions) -> None:
        self._assumptions = assumptions
        self._save, self._load = torch.save, torch.load

    def install(self) -> None:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            self.save(obj, f, *args, **kwargs)

        def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            return self.load(f, map_location, *args, **kwargs)

        torch.save, torch.load = save, load

    def save(self, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        """Writes a note of ``obj`` if it holds tensors of the device, but not over a real checkpoint."""
        size = sum({id(leaf): leaf.nbytes for leaf in pytree.tree_leaves(obj) if _has_no_values(leaf)}.values())
        if size == 0:
            return self._save(obj, f, *args, **kwargs)
        self._assumptions.note("save", _sim.current_site(), f"{size / 2**30:.2f} GiB")
        if not self._is_real(f):
            self._save({_MARK: pytree.tree_map(_without_values, obj)}, f, *args, **kwargs)

    def load(self, f: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
        """What was saved; tensors of a note as memory without values, on ``map_location`` if that is a device."""
        loaded = self._load(f, map_location, *args, **kwargs)
        if not _is_note(loaded):
            return loaded
        device = torch.device(map_location) if isinstance(map_location, (str, int, torch.device)) else "npu"
        return pytree.tree_map(
            lambda leaf: (
                torch.empty_like(leaf, device=device) if isinstance(leaf, torch.Tensor) and leaf.is_meta else leaf
            ),
            loaded[_MARK],
        )

    def _is_real(self, f: Any) -> bool:
        """Whether the path ``f`` is a file that no dry run wrote."""
        if not isinstance(f, (str, os.PathLike)) or not os.path.isfile(f):
            return False
        if os.path.getsize(f) > _LARGEST_NOTE:
            return True
        try:
            return not _is_note(self._load(f, "cpu", weights_only=False))
        except Exception:
            return True
