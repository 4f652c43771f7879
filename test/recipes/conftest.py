"""Ranks for the tests of recipes: those of test/distributed, shared by all tests of a session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# At the end: the folder has a conftest.py of its own.
sys.path.append(str(Path(__file__).resolve().parents[1] / "distributed"))

from ranks import Ranks  # noqa: E402


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
