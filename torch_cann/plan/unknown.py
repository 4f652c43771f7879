"""Numbers that nobody computed. They can be formatted and calculated with; whatever would decide by one is refused, with
the line at which it was read."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_cann.plan.errors import UnknownValueError

_refusals: list[UnknownValueError] = []


def refuse(site: str, doing: str) -> UnknownValueError:
    """The error to raise where ``doing`` needs a value that was read at ``site``, a ``file:line``."""
    file, _, line = site.rpartition(":")
    error = UnknownValueError(
        f"{site}: {doing} needs a value that only a real device computes, and a dry run does not guess. "
        f"Say what it would be: --assume {Path(file).name}:{line}=VALUE"
    )
    _refusals.append(error)
    return error


def last_refusal() -> UnknownValueError | None:
    """What this process refused last. C code may have put an error of its own in its place, such as that a size should
    be an int."""
    return _refusals[-1] if _refusals else None


_NAMES = {
    "__bool__": "a test",
    "__int__": "int()",
    "__index__": "an index, a size or a count",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
    "__eq__": "==",
    "__ne__": "!=",
    "__trunc__": "int()",
    "__floor__": "math.floor()",
    "__ceil__": "math.ceil()",
    "is_integer": "is_integer()",
    "as_integer_ratio": "a fraction",
}


def _deciding(method: str) -> Callable[..., Any]:
    def decide(self: UnknownValue, *_: Any) -> Any:
        raise refuse(self.site, _NAMES[method])

    return decide


class UnknownValue:
    """What both kinds have in common."""

    site: str

    def __repr__(self) -> str:
        return "?"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "?"

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """An operator on tensors takes it for a tensor without dimensions, whose value nobody knows either."""
        device = _device(args)

        def tensor(value: Any) -> Any:
            if isinstance(value, (list, tuple)) and (unknown := [v for v in value if isinstance(v, UnknownValue)]):
                raise refuse(unknown[0].site, "a size")
            if not isinstance(value, UnknownValue):
                return value
            dtype = torch.int64 if isinstance(value, UnknownInt) else torch.float64
            return torch.empty((), dtype=dtype, device=device)

        named = {name: tensor(value) for name, value in (kwargs or {}).items()}
        return function(*map(tensor, args), **named)


def _device(args: Any) -> torch.device:
    return next((arg.device for arg in args if isinstance(arg, torch.Tensor)), torch.device("npu"))


class UnknownFloat(UnknownValue, float):
    """A float whose value is not known. C code that reads it sees NaN."""

    def __new__(cls, site: str) -> UnknownFloat:
        value = super().__new__(cls, float("nan"))
        value.site = site
        return value

    def __reduce__(self) -> Any:
        return UnknownFloat, (self.site,)


class UnknownInt(UnknownValue):
    """An int, or bool, whose value is not known. It is no int to C code, which would take it for 0."""

    def __init__(self, site: str) -> None:
        self.site = site

    def __float__(self) -> float:
        return float(UnknownFloat(self.site))


numbers.Integral.register(UnknownInt)


def _binary(name: str) -> Callable[..., Any]:
    def calculate(self: UnknownValue, other: Any, *_: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented
        whole = isinstance(self, UnknownInt) and isinstance(other, numbers.Integral) and name != "truediv"
        kind = UnknownInt if whole else UnknownFloat
        return (kind(self.site), kind(self.site)) if name == "divmod" else kind(self.site)

    return calculate


def _same(self: Any, *_: Any) -> Any:
    return type(self)(self.site)


for _kind in (UnknownFloat, UnknownInt):
    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod"):
        setattr(_kind, f"__{_name}__", _binary(_name))
        setattr(_kind, f"__r{_name}__", _binary(_name))
    for _name in ("__neg__", "__pos__", "__abs__", "__round__"):
        setattr(_kind, _name, _same)
    for _name in _NAMES:
        setattr(_kind, _name, _deciding(_name))
