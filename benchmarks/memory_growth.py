"""Memory over many small training steps: resident size of the process and the device's own count must stand still."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import harness
import torch
from training import Step

_SAMPLES = 20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _sample(device: str) -> dict[str, int]:
    gc.collect()
    sample = {"resident": _resident_bytes(), "python_objects": len(gc.get_objects())}
    if device != harness.BASELINE:
        module: Any = torch.get_device_module(device)
        sample["allocated"] = module.memory_allocated()
        sample["reserved"] = module.memory_reserved()
    return sample


def main() -> int:
    """Trains and samples; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=1)
    parser.add_argument("--steps", type=int, default=10_000, help="training steps (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=500, help="steps before the first sample (default: %(default)s)")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    options = parser.parse_args()
    harness.prepare(options)
    step = Step("mlp", options.device, options.precision, "default")
    for _ in range(options.warmup):
        step()
    samples = [_sample(options.device)]
    for index in range(1, options.steps + 1):
        step()
        if index % max(1, options.steps // _SAMPLES) == 0:
            samples.append(_sample(options.device))
    growth = {key: samples[-1][key] - samples[0][key] for key in samples[0]}
    rows = [[key, f"{samples[0][key]:,}", f"{samples[-1][key]:,}", f"{growth[key]:+,}"] for key in samples[0]]
    print(f"{options.steps:,} steps on {options.device} after {options.warmup:,} of warm-up")
    results = {"samples": samples, "growth": growth, "loss": step.loss}
    harness.report(options, ["bytes (objects: number)", "first", "last", "growth"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
