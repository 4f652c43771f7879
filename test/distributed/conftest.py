"""Shared ranks for the tests of this folder."""

from __future__ import annotations

import pytest
from ranks import Ranks


class _Pool:
    """Ranks that live as long as the session, replaced after a test has broken them."""

    def __init__(self, size: int, folder):
        self._size = size
        self._folder = folder
        self._ranks: Ranks | None = None

    def get(self) -> Ranks:
        if self._ranks is None or not self._ranks.alive:
            self._ranks = Ranks(self._size, self._folder)
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None and self._ranks.alive:
            assert self._ranks.exit_codes() == [0] * self._size
            self._ranks.kill()


def _pool_fixture(size: int):
    @pytest.fixture(scope="session")
    def pool(tmp_path_factory):
        pool = _Pool(size, tmp_path_factory.mktemp("ranks"))
        yield pool
        pool.close()

    return pool


_pool_of_2 = _pool_fixture(2)
_pool_of_3 = _pool_fixture(3)


@pytest.fixture
def two_ranks(_pool_of_2) -> Ranks:
    return _pool_of_2.get()


@pytest.fixture
def three_ranks(_pool_of_3) -> Ranks:
    return _pool_of_3.get()


@pytest.fixture
def new_ranks(tmp_path):
    """Makes ranks of the test's own: ``new_ranks(2, timeout=3)``; killed when the test ends."""
    made: list[Ranks] = []

    def make(size: int, **settings) -> Ranks:
        made.append(Ranks(size, tmp_path, **settings))
        return made[-1]

    yield make
    for ranks in made:
        ranks.kill()
