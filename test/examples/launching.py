"""Starts the scripts of examples/ as a user does, each in processes of its own.

``CANN_TEST_EXAMPLES_DEVICE=cpu`` runs them on the host, which tests these tests and the examples without the device.
"""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEVICE = os.environ.get("CANN_TEST_EXAMPLES_DEVICE", "npu")

# 24 updates of a model of 0.13 M parameters, in float32, so that results differ only by the order of sums.
TINY_GPT = (
    *("--layers", "2", "--heads", "2", "--width", "64", "--vocab-size", "512", "--corpus-mb", "1"),
    *("--seq-len", "64", "--batch-size", "8", "--steps", "24", "--warmup", "4", "--lr", "5e-3"),
    *("--eval-every", "4", "--eval-sequences", "16", "--sample-tokens", "8", "--dtype", "float32"),
)


def launch(
    folder: Path, script: str, *options: str, processes: int = 0, **environment: str
) -> subprocess.CompletedProcess:
    """Runs a script of examples/ to its end in ``folder``, under torchrun if ``processes`` is given."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    return subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / script), *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed(done: subprocess.CompletedProcess) -> str:
    """What a script printed; fails the test unless it exited with 0."""
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
