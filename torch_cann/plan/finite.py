"""Checks for infinities and NaN, which scripts make to stop when training has gone wrong: a dry run takes it to go well, and
lists where it was asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_cann import _C
from torch_cann.plan.host_copies import HostCopy
from torch_cann.plan.unknown import UnknownValue

_sim = _C._sim
_ANSWERS = {"isfinite": True, "isnan": False, "isinf": False}
Note = Callable[[str, str, str], None]  # kind, file:line, what


def is_unknown(tensor: torch.Tensor) -> bool:
    """Whether nobody knows the values of ``tensor``."""
    return isinstance(tensor, HostCopy) or (tensor.device.type == "npu" and not _sim.values_known(tensor))


def _of_numbers(name: str, note: Note) -> Callable[[Any], bool]:
    real = getattr(math, name)

    def check(value: Any, /) -> bool:
        if not isinstance(value, UnknownValue):
            return real(value)
        note("assume", value.site, f"math.{name}()")
        return _ANSWERS[name]

    return check


def _of_tensors(name: str, real: Callable[..., torch.Tensor], note: Note) -> Callable[..., torch.Tensor]:
    def check(input: torch.Tensor) -> torch.Tensor:  # named as PyTorch names it
        result = real(input)
        if not isinstance(input, torch.Tensor) or not is_unknown(input):
            return result
        note("assume", _sim.current_site(), f"{name}()")
        return torch.full(result.shape, _ANSWERS[name], device=result.device)

    return check


def install(note: Note) -> None:
    """Replaces the checks of ``math`` and ``torch``; ``note`` is told of what was assumed. Once per process, before the
    script starts."""
    for name in _ANSWERS:
        setattr(math, name, _of_numbers(name, note))
        for owner in (torch, torch.Tensor):
            setattr(owner, name, _of_tensors(name, getattr(owner, name), note))
