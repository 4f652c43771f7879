"""The one number by which measured steps differ from the model's, per machine and framework, and how far off it may be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# Median of measured over modelled step times of published runs, and quantiles of what remains; benchmarks/validation.py
# fits and prints them, and how often these ranges hold. Other machines and frameworks have their own: pass --calibration.
_ASCEND_EAGER = 1.18


@dataclass(frozen=True)
class Calibration:
    """``factor`` times the model's time is the estimate; ``spread`` is half of an 80 % interval, as a share."""

    factor: float = _ASCEND_EAGER
    spread: float = 0.20
    source: str = "published runs of MindSpeed-LLM on Atlas 900 A2; another framework may differ by a fifth"

    def range(self, seconds: float) -> tuple[float, float]:
        return seconds * (1 - self.spread), seconds * (1 + self.spread)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# Mixtures of experts: with the dense runs' factor the published ones are off by 15 % in the mean, twice the dense runs'.
_MIXTURE_SPREAD = 0.35
_OWN_SPREAD, _OWN_MIXTURE_SPREAD = 0.10, 0.25


def given(factor: float | None, mixture: bool = False) -> Calibration:
    """The user's own factor, measured on one's own machine, narrows the range; a mixture of experts widens it."""
    if factor is not None:
        return Calibration(factor, _OWN_MIXTURE_SPREAD if mixture else _OWN_SPREAD, "--calibration")
    return Calibration(spread=_MIXTURE_SPREAD) if mixture else Calibration()
