"""What the benchmarks share: interleaved timing, medians, the description of the machine, tables and JSON.

Two subjects are timed in turns, round by round, so that a machine that slows down or speeds up meanwhile does so for
both; the ratio reported is the median of the rounds' ratios, and beside it stands the ratio of the fastest rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

BASELINE = "cpu"
_INTERESTING_FEATURES = frozenset(
    ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "bf16")
)


@dataclass(frozen=True)
class Timing:
    """Seconds per call in each round, of the device and of the baseline."""

    device: list[float]
    baseline: list[float]

    @property
    def device_median(self) -> float:
        return statistics.median(self.device)

    @property
    def baseline_median(self) -> float:
        return statistics.median(self.baseline)

    @property
    def ratio(self) -> float:
        """Device time over baseline time; below 1.0 the device is faster."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.device, self.baseline, strict=True))

    @property
    def best_ratio(self) -> float:
        """The ratio of the fastest rounds, which a busy machine distorts least."""
        return min(self.device) / min(self.baseline)

    def to_json(self) -> dict[str, Any]:
        """Medians, ratio and every round, in seconds."""
        return {
            "device_seconds": self.device_median,
            "baseline_seconds": self.baseline_median,
            "ratio": self.ratio,
            "best_ratio": self.best_ratio,
            "device_rounds": self.device,
            "baseline_rounds": self.baseline,
        }


def argument_parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options every benchmark has; ``description`` is normally the module's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu", help="device compared with the CPU (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads per operator (default: torch's)")
    parser.add_argument("--json", type=Path, help="write machine, parameters and results here")
    return parser


def prepare(options: argparse.Namespace) -> None:
    """Loads the device and applies the options; exits with a message if torch does not know the device."""
    if options.rounds < 1:
        raise SystemExit(f"--rounds must be at least 1, got {options.rounds}")
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.device != BASELINE:
        try:
            import torch_cann  # noqa: F401 - registers the device where the entry point is not installed
        except ImportError as error:
            raise SystemExit(f"--device {options.device} needs torch_cann: {error}") from error
    try:
        torch.empty(1, device=options.device)
    except RuntimeError as error:
        raise SystemExit(f"--device {options.device}: {error}") from error


def synchronize(device: str) -> None:
    """Waits for the device's work; nothing to wait for on the CPU."""
    if device != BASELINE:
        torch.get_device_module(device).synchronize()


def _seconds(function: Callable[[], Any], calls: int, device: str) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    synchronize(device)
    return (time.perf_counter() - start) / calls


def interleave(
    ours: Callable[[], Any], theirs: Callable[[], Any], device: str, rounds: int, batch_seconds: float = 0.0
) -> Timing:
    """Times both functions in turns: each is warmed up, then called once per round or as often as fills
    ``batch_seconds``. The order within a round alternates. Garbage collection is off meanwhile."""
    calls = 1
    for function, where in ((ours, device), (theirs, BASELINE)):
        function()
        once = _seconds(function, 1, where)
        calls = max(calls, math.ceil(batch_seconds / max(once, 1e-7)))
    timing = Timing([], [])
    subjects = [(ours, device, timing.device), (theirs, BASELINE, timing.baseline)]
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for index in range(rounds):
            for function, where, record in subjects if index % 2 == 0 else reversed(subjects):
                record.append(_seconds(function, calls, where))
    finally:
        if was_enabled:
            gc.enable()
    return timing


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; ValueError for an empty sequence."""
    if not values:
        raise ValueError("the geometric mean of nothing is undefined")
    return math.exp(statistics.fmean(math.log(value) for value in values))


def machine() -> dict[str, Any]:
    """The facts a figure depends on: processor, its vector units, threads, memory pages, versions."""
    model, features = _processor()
    return {
        "processor": model,
        "features": features,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "kernels": _own_kernels(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "transparent_huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def _own_kernels() -> str:
    """The instruction set of the device's own kernels, or "none" if it was not loaded."""
    extension = sys.modules.get("torch_cann._C")
    return extension._kernel_set() if extension is not None else "none"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return "unknown"


def _processor() -> tuple[str, list[str]]:
    model, features = platform.machine(), []
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return model, features
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features") and not features:
            features = [feature for feature in value.split() if feature in _INTERESTING_FEATURES]
    return model, features


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text in columns: the first aligned left, the others right."""
    table = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table
    )


def report(
    options: argparse.Namespace, columns: Sequence[str], rows: Sequence[Sequence[str]], results: dict[str, Any]
) -> None:
    """Prints the machine and the table; writes the JSON if asked to."""
    facts = machine()
    print(f"{facts['processor']}, {facts['cores']} cores, {' '.join(facts['features'])}")
    print(f"torch {facts['torch']} for {facts['cpu_capability']}, own kernels for {facts['kernels']}", end=", ")
    print(f"{facts['threads']} threads, load {facts['load_average']:.1f}\n")
    print(format_table(columns, rows))
    if options.json is not None:
        parameters = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        document = {
            "benchmark": Path(sys.argv[0]).stem,
            "machine": facts,
            "parameters": parameters,
            "results": results,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"\nwritten to {options.json}")
