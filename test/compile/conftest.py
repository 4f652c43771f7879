"""Shared by the tests of torch.compile. Generated code is kept in Inductor's own cache, so a second run is quick."""

import pytest
import torch
import torch_npu  # noqa: F401


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Every test compiles anew, from the same seed, on card 0."""
    torch.compiler.reset()
    torch.npu.set_device(0)
    torch.manual_seed(0)
