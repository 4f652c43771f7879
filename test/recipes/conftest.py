"""Shared by the tests of the recipes: the device, and ranks, those of test/distributed, for a whole session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401  (the tests below speak to torch.npu)

# At the end: the folder has a conftest.py of its own.
sys.path.append(str(Path(__file__).resolve().parents[1] / "distributed"))

from ranks import Ranks  # noqa: E402


@pytest.fixture(autouse=True)
def on_card_0():
    """Every test starts and ends on card 0, on its default stream, with the same seed."""
    torch.npu.set_device(0)
    torch.manual_seed(0)
    yield
    torch.npu.set_stream(torch.npu.default_stream(0))


class _Pool:
    """Ranks that live as long as the session, replaced after a test has broken them."""

    def __init__(self, size: int, folder: Path, **environment: str):
        self._make = lambda: Ranks(size, folder, **environment)
        self._ranks: Ranks | None = None

    def get(self) -> Ranks:
        if self._ranks is None or not self._ranks.alive:
            self._ranks = self._make()
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None and self._ranks.alive:
            self._ranks.exit_codes()
            self._ranks.kill()


def _pool(size: int, tmp_path_factory: pytest.TempPathFactory):
    pool = _Pool(size, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def _pool_of_2(tmp_path_factory):
    yield from _pool(2, tmp_path_factory)


@pytest.fixture(scope="session")
def _pool_of_4(tmp_path_factory):
    yield from _pool(4, tmp_path_factory)


@pytest.fixture
def two_ranks(_pool_of_2) -> Ranks:
    """Two processes, rank r on card r, with a default group of backend hccl."""
    return _pool_of_2.get()


@pytest.fixture
def four_ranks(_pool_of_4) -> Ranks:
    return _pool_of_4.get()
