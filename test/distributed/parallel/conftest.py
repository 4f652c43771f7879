"""Ranks for the tests of this folder: one set of processes per world size, shared by all cases."""

from __future__ import annotations

import pytest
from ranks import Ranks


def _shared_ranks(size: int):
    @pytest.fixture(scope="session")
    def run(tmp_path_factory):
        """``run(function, *arguments)`` on all ranks; they are replaced after a case that has failed."""
        folder = tmp_path_factory.mktemp(f"ranks_{size}")
        ranks: Ranks | None = None

        def on_all_ranks(function, *arguments):
            nonlocal ranks
            if ranks is None or not ranks.alive:
                ranks = Ranks(size, folder)
            return ranks.run(function, *arguments)

        yield on_all_ranks
        if ranks is not None and ranks.alive:
            assert ranks.exit_codes() == [0] * size
            ranks.kill()

    return run


on_two_ranks = _shared_ranks(2)
on_four_ranks = _shared_ranks(4)
on_eight_ranks = _shared_ranks(8)
