"""Elementwise operators on 1 to 64 MB of float32, device against CPU: where memory, not arithmetic, sets the pace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import harness
import torch
import torch.nn.functional as F

_MEGABYTES = (1, 4, 16, 64)

# Name, function of two tensors, and how many tensors of the size it reads and writes at least.
_OPERATORS: tuple[tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor], int], ...] = (
    ("a + b", lambda a, b: a + b, 3),
    ("a * b", lambda a, b: a * b, 3),
    ("relu(a)", lambda a, b: torch.relu(a), 2),
    ("exp(a)", lambda a, b: torch.exp(a), 2),
    ("gelu(a)", lambda a, b: F.gelu(a), 2),
    ("a * b + a", lambda a, b: a * b + a, 6),
)


def _subject(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], megabytes: int, device: str
) -> Callable[[], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    count = megabytes * 2**20 // 4
    a, b = (torch.randn(count, generator=generator).to(device) for _ in range(2))
    return lambda: function(a, b)


def main() -> int:
    """Measures every operator at every size; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=15)
    parser.add_argument("--megabytes", type=int, nargs="+", default=list(_MEGABYTES), help="size of each operand")
    options = parser.parse_args()
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    with torch.no_grad():
        for megabytes in options.megabytes:
            for name, function, tensors in _OPERATORS:
                ours = _subject(function, megabytes, options.device)
                theirs = _subject(function, megabytes, harness.BASELINE)
                timing = harness.interleave(ours, theirs, options.device, options.rounds, batch_seconds=0.02)
                bandwidth = tensors * megabytes * 2**20 / timing.device_median / 1e9
                results[f"{name} {megabytes} MB"] = {**timing.to_json(), "device_bytes_per_second": bandwidth * 1e9}
                rows.append(
                    [
                        name,
                        f"{megabytes} MB",
                        f"{timing.baseline_median * 1e3:.3f}",
                        f"{timing.device_median * 1e3:.3f}",
                        f"{1 / timing.ratio:.2f}x",
                        f"{1 / timing.best_ratio:.2f}x",
                        f"{bandwidth:.1f}",
                    ]
                )
    columns = ["operator", "size", "cpu ms", f"{options.device} ms", "speed-up", "best", "GB/s"]
    harness.report(options, columns, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
