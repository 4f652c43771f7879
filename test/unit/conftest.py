"""Shared by the unit tests of the Python package: every test sees the device, and may run code in a fresh process."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch_npu  # noqa: F401  (the tests below speak to torch.npu)


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


@pytest.fixture(autouse=True)
def on_card_0():
    """Every test starts and ends on card 0, on its default stream."""
    torch.npu.set_device(0)
    yield
    torch.npu.set_stream(torch.npu.default_stream(0))
