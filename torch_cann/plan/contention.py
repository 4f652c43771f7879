"""Transfers of one rank that are under way together: what sharing the card's network adds to what it does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torch_cann import _C
from torch_cann.plan.ranks import ACTION, COLLECTIVE, RECEIVE, SEND

_sim = _C._sim


def seconds_of(work: Callable[[], None], rank: int) -> float:
    """Device time of ``work`` as done by global ``rank``, from its first operator to its last transfer.

    The clock as it runs gives each transfer the whole network card. Here the actions are replayed with those shared
    whose groups go between servers (csrc/sim/shared_links.h). Starts the process's clock anew.
    """
    _sim.reset()
    _sim.set_recording(True, False)
    try:
        work()
        recorded = _sim.actions()
        alone = _sim.now()
    finally:
        _sim.set_recording(False)
    table = np.frombuffer(recorded, dtype=ACTION)
    groups = _sim.groups()
    used = set(table["what"][np.isin(table["kind"], (COLLECTIVE, SEND, RECEIVE))].tolist())
    shares = [_sim.network_share(ranks) if i in used else 0.0 for i, (_, ranks) in enumerate(groups)]
    if sum(shares) == 0:
        return alone / 1e6
    trace = (rank, recorded, [str(i) for i in range(len(groups))], [[rank]] * len(groups), shares)
    ((start, end, _, _),) = _sim.replay([trace])
    return max(np.frombuffer(start).max(initial=0), np.frombuffer(end).max(initial=0)) / 1e6
