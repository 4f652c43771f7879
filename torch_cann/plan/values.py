"""Values that nobody computed: what a script gets that reads one from a dry device.

A number that is only formatted or added up becomes an unknown one (unknown.py), which carries the line it was read at and
is refused when compared, tested or used as a size. Answers given with ``--assume file:line=value`` are used as they are.
Everything read is listed in the report.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_cann import _C
from torch_cann.plan import finite, host_copies
from torch_cann.plan.errors import PlanError
from torch_cann.plan.unknown import UnknownFloat, UnknownInt, UnknownValue, refuse

_sim = _C._sim

KINDS = {
    "value": "decides something on the host",
    "printed": "shown or added up, never compared",
    "copy": "copied to the host as NaN",
    "count": "number of elements selected",
    "assume": "taken to be finite",
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


def _typed(tensor: torch.Tensor, number: float) -> Any:
    if tensor.dtype == torch.bool:
        return bool(number)
    return number if tensor.dtype.is_floating_point else int(number)


class _Reader:
    """Answers reads of unknown values: Tensor's methods for numbers and texts, and what the device itself is asked."""

    def __init__(self, assumptions: Assumptions) -> None:
        self._assumptions = assumptions
        self._item, self._tolist, self._repr = torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__repr__
        self._passing = False  # the device is asked for the time that the read takes, and its answer is dropped

    def number(self, tensor: torch.Tensor) -> Any:
        """The answer for the line that is running, or an unknown number that remembers it."""
        site = _sim.current_site()
        answer = self._assumptions.number(site)
        self._assumptions.note("printed" if answer is None else "value", site, "item()")
        if answer is not None:
            return _typed(tensor, answer)
        return UnknownFloat(site) if tensor.dtype.is_floating_point else UnknownInt(site)

    def _wait(self, tensor: torch.Tensor) -> None:
        """Has the host wait for the device, as a copy of ``tensor``, which has an element, would."""
        self._passing = True
        try:
            self._item(tensor[(0,) * tensor.dim()])
        finally:
            self._passing = False

    def item(self, tensor: torch.Tensor) -> Any:
        if not finite.is_unknown(tensor) or tensor.numel() != 1:
            return self._item(tensor)
        self._wait(tensor)
        return self.number(tensor)

    def tolist(self, tensor: torch.Tensor) -> Any:
        if not finite.is_unknown(tensor) or tensor.numel() == 0:
            return self._tolist(tensor)
        self._wait(tensor)
        return self._numbers(tensor)

    def _numbers(self, tensor: torch.Tensor) -> Any:
        return self.number(tensor) if tensor.dim() == 0 else [self._numbers(part) for part in tensor.unbind(0)]

    def show(self, tensor: torch.Tensor, tensor_contents: Any) -> str:
        if not finite.is_unknown(tensor):
            return self._repr(tensor, tensor_contents=tensor_contents)
        self._assumptions.note("printed", _sim.current_site(), "tensor")
        return f"tensor(?, device='{tensor.device}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"

    def device_asks(self, kind: str, operator: str, shape: list[int], dtype: str) -> float | None:
        if self._passing:
            return 0.0
        site = _sim.current_site() or "?:0"
        name = operator.removeprefix("aten::")
        if kind in ("copy", "assume"):
            self._assumptions.note(kind, site, f"{dtype}{shape}")
            return None
        number = self._assumptions.number(site, math.prod(shape))
        self._assumptions.note(kind, site, name)
        if number is None:
            doing = "a test or a number" if name == "_local_scalar_dense" else name
            doing += f" of a {dtype} tensor of shape {shape}"
            raise refuse(site, doing + (" (how many elements it selects)" if kind == "count" else ""))
        return number


def install(assumptions: Assumptions, internal: tuple[str, ...]) -> None:
    """Makes reads of unknown values report to ``assumptions``. Once per process, before the script starts.

    Args:
        internal: files and folders whose code is not the script's.
    """
    reader = _Reader(assumptions)

    def item(self: torch.Tensor) -> Any:
        return reader.item(self)

    def tolist(self: torch.Tensor) -> Any:
        return reader.tolist(self)

    def show(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        return reader.show(self, tensor_contents)

    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__repr__ = item, tolist, show
    _sim.set_unknown_handler(reader.device_asks)
    _install_numbers(assumptions)
    host_copies.install(reader.number, internal)
    finite.install(assumptions.note)


def _install_numbers(assumptions: Assumptions) -> None:
    """What unknown numbers become in C code: NaN, which is listed, and null in JSON."""

    def to_float(self: UnknownFloat) -> float:
        assumptions.note("copy", self.site, "float()")
        return math.nan

    UnknownFloat.__float__ = to_float
    encode = json.JSONEncoder.default
    json.JSONEncoder.default = lambda self, value: None if isinstance(value, UnknownValue) else encode(self, value)
