"""The known differences between the device and the CPU, read from ``exceptions.toml`` beside this file.

Three tables. ``[[exception]]``: a check of a case that fails, with the reason; it must go on failing, else the entry is
stale and the suite says so. ``[[tolerance]]``: results that may differ in their last bits on some machines.
``[[own_kernel]]``: operators that kernels of our own compute, measured by float64 instead of the CPU's bits.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import Case

_TABLE = Path(__file__).with_name("exceptions.toml")


@dataclass(frozen=True)
class Tables:
    """The tables, expanded to (operator, variant, check, dtype), own kernels to (operator, dtype)."""

    exceptions: dict[tuple[str, str, str, str], str]
    tolerances: dict[tuple[str, str, str, str], tuple[float, float]]
    own_kernels: set[tuple[str, str]]


def _require_reason(entry: dict[str, Any]) -> None:
    if not entry["reason"].strip():
        raise ValueError(f"{_TABLE.name}: the entry for {entry['ops']} gives no reason")


def _expand(entry: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The keys an entry stands for; without ``variants`` it is the operator's unnamed variant."""
    _require_reason(entry)
    return [
        (op, variant, check, dtype)
        for op in entry["ops"]
        for variant in entry.get("variants", [""])
        for check in entry["checks"]
        for dtype in entry["dtypes"]
    ]


@functools.cache
def tables() -> Tables:
    """The parsed tables; ValueError for an entry without a reason or listed twice, KeyError for a missing field."""
    document = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    exceptions: dict[tuple[str, str, str, str], str] = {}
    for entry in document.get("exception", []):
        for key in _expand(entry):
            if key in exceptions:
                raise ValueError(f"{_TABLE.name}: {key} is listed twice")
            exceptions[key] = entry["reason"]
    tolerances = {
        key: (float(entry["rtol"]), float(entry["atol"]))
        for entry in document.get("tolerance", [])
        for key in _expand(entry)
    }
    own_kernels: set[tuple[str, str]] = set()
    for entry in document.get("own_kernel", []):
        _require_reason(entry)
        own_kernels.update((op, dtype) for op in entry["ops"] for dtype in entry["dtypes"])
    return Tables(exceptions, tolerances, own_kernels)


def reason_for(case: Case, check: str) -> str | None:
    """Why this check of this case is known to fail, or None if it must pass."""
    return tables().exceptions.get((case.op, case.variant, check, case.dtype))


def tolerance_of(case: Case, check: str) -> tuple[float, float]:
    """(rtol, atol) for this check of this case; zeros, meaning equal bits, unless listed."""
    return tables().tolerances.get((case.op, case.variant, check, case.dtype), (0.0, 0.0))


def has_own_kernel(case: Case) -> bool:
    """Whether a kernel of our own computes this case: then float64 is the measure of its numbers, not the CPU's bits."""
    return (case.op, case.dtype) in tables().own_kernels
