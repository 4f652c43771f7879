"""The operators under test are torch_npu's; every test starts with the same random numbers."""

import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401  (torch.ops.npu)

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)
    torch.npu.set_device(0)
