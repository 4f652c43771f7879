"""Learning rates over a run: warm-up, then a decay. Factors of the optimizer's own learning rates."""

import math
from collections.abc import Callable

from torch_cann.recipes.train import _checks


def _linear(progress: float) -> float:
    return 1.0 - progress


def _cosine(progress: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * progress))


_DECAYS: dict[str, Callable[[float], float]] = {"constant": lambda _: 1.0, "linear": _linear, "cosine": _cosine}
SCHEDULES = (*_DECAYS, "inverse_sqrt")


class Schedule:
    """Step (0-based) -> factor. Rises evenly to 1 over the warm-up, then falls to ``floor`` at ``total`` steps.

    "inverse_sqrt" falls as sqrt(warm-up / step) and needs no total.

    Args:
        warmup: steps, or below 1 a share of ``total``.
    """

    def __init__(self, name: str, total: int, warmup: float = 0, floor: float = 0.0) -> None:
        self._name = _checks.one_of("schedule", name, SCHEDULES)
        self._total = _checks.whole("total", total, 1)
        _checks.number("warmup_steps", warmup, 0)
        self._warmup = round(warmup * total) if warmup < 1 else int(warmup)
        self._floor = _checks.number("floor", floor, 0, 1)

    def __call__(self, step: int) -> float:
        if step < self._warmup:
            return (step + 1) / self._warmup
        if self._name == "inverse_sqrt":
            return max(self._floor, math.sqrt(max(1, self._warmup) / max(1, step)))
        progress = min(1.0, (step - self._warmup) / max(1, self._total - self._warmup))
        return self._floor + (1 - self._floor) * _DECAYS[self._name](progress)
