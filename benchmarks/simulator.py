"""What the device's clock adds to an operator: tiny operators with the clock on and off, in turns, in one process.

The baseline is the same device with the clock off. What is added is the difference of the fastest rounds, which other
work on the machine did not disturb: it is less than the spread of the medians.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import harness
import torch

_CALLS = 100


def _operators() -> dict[str, Callable[[], object]]:
    a, b = torch.ones(8, 8, device="npu"), torch.ones(8, 8, device="npu")
    several = [torch.ones(8, device="npu") for _ in range(4)]
    return {
        "add": lambda: a + b,
        "add_": lambda: a.add_(b, alpha=0.0),
        "mm": lambda: a @ b,
        "softmax": lambda: torch.softmax(a, -1),
        "cat of 4": lambda: torch.cat(several),
    }


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - started) / _CALLS


def main() -> int:
    """Measures every operator; the number returned is the exit status."""
    options = harness.argument_parser(__doc__, rounds=1000).parse_args()
    harness.prepare(options)
    from torch_cann import _C

    rows, results = [], {}
    for name, call in _operators().items():
        timings: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(options.rounds):
            for on in (False, True):
                _C._sim.set_on(on)
                timings[on].append(_seconds(call))
        timing = harness.Timing(device=timings[True], baseline=timings[False])
        added = min(timing.device) - min(timing.baseline)
        results[name] = timing.to_json() | {"added_seconds": added}
        rows.append(
            [name, f"{timing.baseline_median * 1e6:.3f}", f"{timing.device_median * 1e6:.3f}", f"{added * 1e9:+.0f}"]
        )
    _C._sim.set_on(False)
    harness.report(options, ["operator", "clock off us", "clock on us", "added ns"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
