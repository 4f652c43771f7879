"""Shared by all Python tests."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs code in a fresh interpreter and returns what it printed last; fails the test when the code fails.

    Keyword arguments are environment variables, None to unset one.
    """

    def run(code: str, **environment: str | None) -> str:
        env = {**os.environ, **{k: v for k, v in environment.items() if v is not None}}
        for name, value in environment.items():
            if value is None:
                env.pop(name, None)
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        lines = done.stdout.strip().splitlines()
        return lines[-1] if lines else ""

    return run
