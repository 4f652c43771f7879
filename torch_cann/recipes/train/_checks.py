"""Checks of arguments: each says what was given, what is allowed, and where."""

from collections.abc import Iterable
from typing import Any

import torch

_DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "float16": torch.float16,
    "fp16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
}


def number(what: str, value: Any, low: float, high: float | None = None, *, open_low: bool = False) -> float:
    """``value`` if it is a number from ``low`` to ``high``; ``open_low`` excludes ``low`` itself."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number, but is {value!r}")
    if not (value > low if open_low else value >= low) or (high is not None and value > high):
        bound = f"{'above' if open_low else 'at least'} {low:g}" + ("" if high is None else f" and at most {high:g}")
        raise ValueError(f"{what} must be {bound}, but is {value!r}")
    return value


def whole(what: str, value: Any, low: int) -> int:
    """``value`` if it is an int of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, but is {value!r}")
    if value < low:
        raise ValueError(f"{what} must be at least {low}, but is {value}")
    return value


def one_of(what: str, value: Any, allowed: Iterable[Any]) -> Any:
    """``value`` if it is among ``allowed``."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, but is {value!r}")
    return value


def float_dtype(what: str, value: Any, allowed: tuple[torch.dtype, ...]) -> torch.dtype:
    """A dtype given as such or by name ("fp16", "bfloat16", ...), among ``allowed``."""
    dtype = _DTYPES.get(value, value) if isinstance(value, str) else value
    if dtype not in allowed:
        names = ", ".join(str(a).removeprefix("torch.") for a in allowed)
        raise ValueError(f"{what} must be one of {names}, but is {value!r}")
    return dtype
