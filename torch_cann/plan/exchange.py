"""Messages between ranks that run dry in processes of their own, and which ranks have to run because of them.

A rank has a :class:`Courier`, the end of a pipe to the process that started it. There the :class:`PostOffice` keeps what
was posted, answers who waits for it, and remembers which ranks were named as peers.

A rank that is run as the mirror of another has no peers: it is told what the other was told, in the same order.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from multiprocessing.connection import Connection


class Courier:
    """A rank's end: what the process group of a dry run calls (csrc/distributed/dry_exchange.h)."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def meet(self, peer: int) -> None:
        self._pipe.send(("meet", peer))

    def post(self, message: str, content: bytes | None, shared: bool) -> None:
        self._pipe.send(("post", message, content, shared))

    def fetch(self, peer: int, message: str, shared: bool) -> bytes | None:
        """Waits until ``peer`` posts ``message``; None if nobody knows what is in it."""
        self._pipe.send(("fetch", peer, message, shared))
        return self._pipe.recv()


@dataclass
class _Waiting:
    rank: int
    pipe: Connection
    peer: int
    message: str
    shared: bool


@dataclass
class PostOffice:
    """The messages of the ranks that run.

    ``met`` are the ranks that somebody sends to, receives from or is told something by. ``told`` is, for each rank, what
    it learned, in order: the messages that it fetched, and what its groups' roots published, itself among them.
    """

    met: set[int] = field(default_factory=set)
    told: dict[int, list[bytes | None]] = field(default_factory=lambda: collections.defaultdict(list))
    _posted: dict[str, bytes | None] = field(default_factory=dict)
    _waiting: list[_Waiting] = field(default_factory=list)
    _ended: set[int] = field(default_factory=set)

    def blocked(self) -> set[int]:
        return {waiting.rank for waiting in self._waiting}

    def waits(self) -> str:
        """Who waits for whom, for a message."""
        return ", ".join(f"rank {waiting.rank} for rank {waiting.peer}" for waiting in self._waiting)

    def handle(self, rank: int, pipe: Connection, request: tuple) -> None:
        """One request of ``rank``'s courier."""
        if request[0] == "meet":
            self.met.add(request[1])
        elif request[0] == "post":
            _, message, content, shared = request
            self._posted[message] = content
            if shared:
                self.told[rank].append(content)
            self._deliver([waiting for waiting in self._waiting if waiting.message == message])
        else:
            _, peer, message, shared = request
            self.met.add(peer)
            waiting = _Waiting(rank, pipe, peer, message, shared)
            self._waiting.append(waiting)
            if message in self._posted or peer in self._ended:
                self._deliver([waiting])

    def ended(self, rank: int) -> None:
        """``rank`` posts no more: who waits for it will never know."""
        self._ended.add(rank)
        self._deliver([waiting for waiting in self._waiting if waiting.peer == rank])

    def _deliver(self, receivers: list[_Waiting]) -> None:
        for waiting in receivers:
            content = self._posted.get(waiting.message) if waiting.shared else self._posted.pop(waiting.message, None)
            self._waiting.remove(waiting)
            self.told[waiting.rank].append(content)
            waiting.pipe.send(content)


class Replay:
    """In place of a :class:`PostOffice` for a mirror: answers with what the other rank was told."""

    met: frozenset[int] = frozenset()

    def __init__(self, told: list[bytes | None]) -> None:
        self._told = iter(told)

    def blocked(self) -> set[int]:
        return set()

    def handle(self, rank: int, pipe: Connection, request: tuple) -> None:
        if request[0] == "fetch":
            pipe.send(next(self._told, None))
        elif request[0] == "post" and request[3]:
            next(self._told, None)

    def ended(self, rank: int) -> None:
        """Nobody waits."""
