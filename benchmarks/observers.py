"""What the profiler and the stream sanitizer add to a training step of a tiny MLP, the case where it shows most.

Both sides run on the device. The profiler is compared while it waits for its active steps, which is what a script pays
that profiles three steps of a thousand, after it has ended, and while it records; the sanitizer while it is on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is loaded; else each step prints a warning

import harness
from training import Step


def _profiled(step: Callable[[], Any], stack: contextlib.ExitStack) -> Callable[[], Any]:
    from torch_cann import profiler

    never = profiler.schedule(wait=1 << 30, warmup=1, active=1)
    watch = stack.enter_context(profiler.profile(schedule=never, record_shapes=True, profile_memory=True))

    def run() -> None:
        step()
        watch.step()

    return run


def _after_a_profile(step: Callable[[], Any], stack: contextlib.ExitStack) -> Callable[[], Any]:
    from torch_cann import profiler

    with profiler.profile():
        step()
    return step


def _recorded(step: Callable[[], Any], stack: contextlib.ExitStack) -> Callable[[], Any]:
    from torch_cann import profiler

    host = [profiler.ProfilerActivity.CPU]
    watch = stack.enter_context(profiler.profile(activities=host, record_shapes=True))
    watch.toggle_collection_dynamic(False, host)

    def run() -> None:
        watch.toggle_collection_dynamic(True, host)
        step()
        watch.toggle_collection_dynamic(False, host)

    return run


def _sanitized(step: Callable[[], Any], stack: contextlib.ExitStack) -> Callable[[], Any]:
    from torch_cann.sanitizer import StreamSanitizer

    def run() -> None:
        with StreamSanitizer():
            step()

    return run


_SUBJECTS = {
    "profiler, waiting": _profiled,
    "profiler, ended": _after_a_profile,
    "profiler, recording": _recorded,
    "sanitizer, on": _sanitized,
}


def main() -> int:
    """Measures and prints; the number returned is the exit status."""
    options = harness.argument_parser(__doc__, rounds=100).parse_args()
    harness.prepare(options)
    rows, results = [], {}
    for name, observed in _SUBJECTS.items():
        with contextlib.ExitStack() as stack:
            plain = Step("mlp", options.device, "fp32", "default")
            watched = observed(Step("mlp", options.device, "fp32", "default"), stack)
            timing = harness.interleave(watched, plain, options.device, options.rounds, batch_seconds=0.03)
        rows.append([name, f"{timing.ratio:.3f}", f"{timing.best_ratio:.3f}"])
        results[name] = timing.to_json()
    harness.report(options, ["with", "time over plain", "fastest rounds"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
