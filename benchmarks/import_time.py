"""What the backend adds to ``import torch``: fresh processes with and without it, in turns.

Where the distribution is installed, torch loads the backend itself (entry point ``torch.backends``), and
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` leaves it out. In a source tree without the entry point, ``import torch_cann`` after
``import torch`` stands for it.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import subprocess
import sys

import harness

_TIMER = "import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"


def _import_seconds(statement: str, autoload: bool) -> float:
    """Seconds the import statement takes in a fresh interpreter; RuntimeError with its output if it fails."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
    process = subprocess.run(
        [sys.executable, "-c", _TIMER.format(statement=statement)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if process.returncode != 0:
        raise RuntimeError(f"{statement!r} failed with exit code {process.returncode}:\n{process.stderr}")
    return float(process.stdout.split()[-1])


def _is_installed() -> bool:
    return any(point.value.split(":")[0].split(".")[0] in ("torch_cann", "torch_npu")
               for point in importlib.metadata.entry_points(group="torch.backends"))  # fmt: skip


def main() -> int:
    """Measures both kinds of process; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=11)
    options = parser.parse_args()
    installed = _is_installed()
    statement = "import torch" if installed else "import torch, torch_cann"
    if options.device == harness.BASELINE:
        statement = "import torch"
    plain: list[float] = []
    loaded: list[float] = []
    _import_seconds(statement, autoload=installed)
    for _ in range(options.rounds):
        plain.append(_import_seconds("import torch", autoload=False))
        loaded.append(_import_seconds(statement, autoload=installed))
    added = statistics.median(with_it - without for with_it, without in zip(loaded, plain, strict=True))
    rows = [
        ["import torch, no backend", f"{statistics.median(plain):.3f}"],
        [f"{statement}{', backend autoloaded' if installed else ''}", f"{statistics.median(loaded):.3f}"],
        ["added", f"{added:+.3f}"],
    ]
    results = {"installed": installed, "plain_rounds": plain, "loaded_rounds": loaded, "added_seconds": added}
    harness.report(options, ["import", "seconds"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
