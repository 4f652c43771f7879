"""Shared by the tests of torch_npu's names."""

import pytest
import torch
import torch_npu  # noqa: F401  (the tests below speak to torch.npu)


@pytest.fixture(autouse=True)
def on_card_0():
    """Every test starts and ends on card 0, on its default stream."""
    torch.npu.set_device(0)
    yield
    torch.npu.set_stream(torch.npu.default_stream(0))
