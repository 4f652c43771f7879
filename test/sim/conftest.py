"""Shared by the simulator's tests: npu-plan on a script, and code in a process that is dry or keeps the device's clock."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

_CLEARED = ("TORCH_CANN_DRY_RUN", "TORCH_CANN_SIMULATE", "TORCH_CANN_SOC", "TORCH_CANN_SOC_FILE", "TORCH_CANN_HBM_MB")


def _environment(**changes: str) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    return environment | {"OMP_NUM_THREADS": "1"} | changes


@pytest.fixture
def npu_plan(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """npu_plan(*arguments, script=None): runs the command; ``script`` is written to train.py and named last. Output is
    captured, or goes to the descriptor ``stdout``."""

    def run(
        *arguments: str, script: str | None = None, after: tuple[str, ...] = (), stdout: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "npu_plan", *arguments]
        if script is not None:
            (tmp_path / "train.py").write_text(textwrap.dedent(script))
            command += ["train.py", *after]
        return subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=180,
            cwd=tmp_path,
            env=_environment(),
        )

    return run


@pytest.fixture
def run_code(tmp_path: Path) -> Callable[..., str]:
    """run_code(code, **environment): runs code in a fresh process and returns what it printed; fails if it fails."""

    def run(code: str, **changes: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=180,
            cwd=tmp_path,
            env=_environment(**changes),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    return run
