"""Values that nobody computed: what a script gets that reads one from a dry device.

A number that is only formatted or added up becomes an :class:`UnknownFloat` or :class:`UnknownInt`, which carries the
line it was read at and raises :class:`UnknownValueError` when compared, tested or rounded. Answers given with
``--assume file:line=value`` are used as they are. Everything read is listed in the report.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from torch_cann import _C
from torch_cann.plan.errors import PlanError, UnknownValueError

_sim = _C._sim

KINDS = {
    "value": "decides something on the host",
    "printed": "shown or added up, never compared",
    "copy": "copied to the host as NaN",
    "count": "number of elements selected",
    "assume": "no overflow in the gradients",
    "save": "checkpoint not written",
}


def _is(site: str, given: str) -> bool:
    return site == given or site.endswith("/" + given)


def _number(site: str, text: str, elements: int) -> float:
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100 * elements
        return {"true": 1.0, "false": 0.0}[text.lower()] if text.lower() in ("true", "false") else float(text)
    except ValueError as error:
        raise PlanError(f"--assume {site}={text}: expected a number, True, False or a share such as 25%") from error


class Assumptions:
    """Answers by line, and what was read where.

    Args:
        answers: ``{"file:line": text}``; the file may be a full path or its last parts; the text is a number, True or
            False, or a share such as ``25%`` for counts.
    """

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers
        self.sites: collections.Counter[tuple[str, str, str]] = collections.Counter()

    @classmethod
    def parse(cls, items: list[str]) -> Assumptions:
        """From ``file:line=value`` strings. Raises PlanError for anything else."""
        answers = {}
        for item in items:
            site, equals, value = item.rpartition("=")
            if not equals or ":" not in site or not site.rpartition(":")[2].isdigit():
                raise PlanError(f"--assume takes file:line=value, for example train.py:42=0.5, but got {item!r}")
            _number(site, value, 1)
            answers[site] = value
        return cls(answers)

    def unused(self, sites: Iterable[str]) -> list[str]:
        """The answers, as they were given, that are for none of ``sites``."""
        return [f"{given}={value}" for given, value in self._answers.items() if not any(_is(s, given) for s in sites)]

    def note(self, kind: str, site: str, what: str) -> None:
        self.sites[(kind, site, what)] += 1

    def answer(self, site: str) -> str | None:
        for given, value in self._answers.items():
            if _is(site, given):
                return value
        return None

    def number(self, site: str, elements: int = 1) -> float | None:
        """The answer for ``site`` as a number; a share is one of ``elements``."""
        text = self.answer(site)
        return None if text is None else _number(site, text, elements)

    def listed(self) -> list[dict[str, Any]]:
        return [
            {"kind": kind, "meaning": KINDS[kind], "site": site, "what": what, "times": times}
            for (kind, site, what), times in sorted(self.sites.items(), key=lambda item: item[0][1])
        ]


def _refuse(site: str, doing: str) -> UnknownValueError:
    return UnknownValueError(
        f"{site}: {doing} needs a value that only a real device computes, and a dry run does not guess. "
        f"Say what it would be: --assume {_short(site)}=VALUE"
    )


def _short(site: str) -> str:
    file, _, line = site.rpartition(":")
    return f"{Path(file).name}:{line}"


def _deciding(name: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any) -> Any:
        raise _refuse(
            self.site, {"__bool__": "a test", "__int__": "int()", "__float__": "float()"}.get(name, f"{name}")
        )

    return method


class _Unknown:
    site: str

    def __repr__(self) -> str:
        return "?"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "?"

    def __hash__(self) -> int:
        return id(self)


def _arithmetic(kind: type) -> None:
    """Results of arithmetic are unknown too, of the line the first operand was read at."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        for method in (f"__{name}__", f"__r{name}__"):
            setattr(kind, method, lambda self, other, *_: UnknownFloat(self.site))
    for method in ("__neg__", "__pos__", "__abs__"):
        setattr(kind, method, lambda self: type(self)(self.site))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(
            kind, f"__{name}__", _deciding({"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[name])
        )
    for method in ("__bool__", "__int__", "__index__", "__trunc__", "__floor__", "__ceil__", "is_integer"):
        setattr(kind, method, _deciding(method))
    kind.__round__ = lambda self, digits=None: UnknownFloat(self.site)


class UnknownFloat(_Unknown, float):
    """A float whose value is not known. C code that reads it sees NaN."""

    def __new__(cls, site: str) -> UnknownFloat:
        value = super().__new__(cls, float("nan"))
        value.site = site
        return value


class UnknownInt(_Unknown, int):
    """An int, or bool, whose value is not known."""

    def __new__(cls, site: str) -> UnknownInt:
        value = super().__new__(cls, 0)
        value.site = site
        return value


_arithmetic(UnknownFloat)
_arithmetic(UnknownInt)


def _is_unknown(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "npu" and not _sim.values_known(tensor)


def _typed(tensor: torch.Tensor, number: float) -> Any:
    if tensor.dtype == torch.bool:
        return bool(number)
    return number if tensor.dtype.is_floating_point else int(number)


def install(assumptions: Assumptions) -> None:
    """Makes reads of unknown values report to ``assumptions``. Once per process, before the script starts."""
    _sim.set_unknown_handler(_handler(assumptions))
    real = {name: getattr(torch.Tensor, name) for name in ("item", "tolist", "__repr__")}

    def read(tensor: torch.Tensor) -> Any:
        site = _sim.current_site()
        number = assumptions.number(site)
        if number is not None:
            assumptions.note("value", site, "item()")
            return _typed(tensor, number)
        assumptions.note("printed", site, "item()")
        return UnknownFloat(site) if tensor.dtype.is_floating_point else UnknownInt(site)

    def item(self: torch.Tensor) -> Any:
        if not _is_unknown(self) or self.numel() != 1:
            return real["item"](self)
        return read(self)

    def tolist(self: torch.Tensor) -> Any:
        if not _is_unknown(self):
            return real["tolist"](self)
        return read(self) if self.dim() == 0 else [part.tolist() for part in self.unbind(0)]

    def show(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        if not _is_unknown(self):
            return real["__repr__"](self, tensor_contents=tensor_contents)
        assumptions.note("printed", _sim.current_site(), "tensor")
        return f"tensor(?, device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"

    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__repr__ = item, tolist, show


def _handler(assumptions: Assumptions) -> Callable[..., float | None]:
    def handler(kind: str, operator: str, shape: list[int], dtype: str) -> float | None:
        site = _sim.current_site() or "?:0"
        elements = 1
        for size in shape:
            elements *= size
        name = operator.removeprefix("aten::")
        if kind in ("copy", "assume"):
            assumptions.note(kind, site, f"{dtype}{shape}")
            return None
        number = assumptions.number(site, elements)
        assumptions.note(kind, site, name)
        if number is None:
            doing = f"{name} of a {dtype} tensor of shape {shape}"
            raise _refuse(site, doing + (" (how many elements it selects)" if kind == "count" else ""))
        return number

    return handler
