"""Runs a test file again with another instruction set's kernels, in a process of its own: the choice is made once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CAPABILITIES = ("baseline", "avx2", "avx512")


def run_again(path: str, capability: str, selection: str) -> None:
    """Runs the tests of the file that ``selection`` (pytest's ``-k``) names; skips if the CPU lacks the set."""
    environment = {**os.environ, "TORCH_CANN_CPU_CAPABILITY": capability}
    probe = [sys.executable, "-c", "import torch, torch_npu; torch._foreach_neg_([torch.ones(1).npu()])"]
    refused = subprocess.run(probe, env=environment, capture_output=True, text=True, check=False)
    if refused.returncode != 0:
        assert "this CPU lacks these instructions" in refused.stderr
        pytest.skip(f"this CPU has no {capability}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", selection, path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
