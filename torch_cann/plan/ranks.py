"""The ranks that differ: one process each, found by following who talks to whom, and checked against a second member."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np

from torch_cann.plan.errors import PlanError
from torch_cann.plan.exchange import Courier, PostOffice, Replay
from torch_cann.plan.script import Job, Trace, run

# sim::Action
ACTION = np.dtype(
    [
        ("kind", "u1"),
        ("engine", "u1"),
        ("stream", "<u2"),
        ("collective", "u1"),
        ("reserved", "V3"),
        ("what", "<u4"),
        ("event", "<u4"),
        ("site", "<u4"),
        ("us", "<f4"),
        ("host_us", "<f4"),
        ("padding", "V4"),
        ("value", "<i8"),
        ("allocated", "<i8"),
    ]
)
LAUNCH, RECORD, WAIT, HOST_WAIT, HOST_SYNC, COLLECTIVE, SEND, RECEIVE, MARK = range(9)


def actions(trace: Trace) -> np.ndarray:
    return np.frombuffer(trace.actions, dtype=ACTION)


@dataclass
class _Process:
    rank: int
    pid: int
    pipe: Connection
    path: Path  # where it leaves its trace


def _child(job: Job, rank: int, path: Path, quiet: bool, pipe: Connection) -> None:
    """The forked process: never returns."""
    code = 0
    try:
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
        trace = run(job, rank, Courier(pipe))
        with contextlib.suppress(ValueError):  # a script may close it
            sys.stdout.flush()
        path.write_bytes(pickle.dumps(trace))
    except (PlanError, BrokenPipeError) as error:
        path.write_bytes(pickle.dumps(error))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


class _Pool:
    """Ranks of ``job``, each in a process forked from this one; as many compute at once as there are processors, while
    those that wait for a message of another do not count. Output of all but the first rank is dropped."""

    def __init__(self, job: Job, office: PostOffice | Replay, first: int, quiet: bool, folder: Path) -> None:
        self._job, self._office, self._first, self._quiet, self._folder = job, office, first, quiet, folder
        self._running: dict[Connection, _Process] = {}
        self._started: set[int] = set()
        self.done: dict[int, Trace] = {}

    def run(self) -> None:
        """Runs the first rank and all that it turns out to need; ends early when one of them fails.

        Raises PlanError when ranks wait for each other for ever.
        """
        try:
            while not any(trace.failure for trace in self.done.values()):
                waiting = sorted(({self._first} | self._office.met) - self._started)
                idle = (os.cpu_count() or 1) - len(self._running) + len(self._office.blocked())
                for rank in waiting[: max(0, idle)]:
                    self._start(rank)
                if not self._running:
                    return
                if len(self._office.blocked()) == len(self._running):
                    raise PlanError(f"the ranks wait for each other for ever: {self._office.waits()}")
                for pipe in wait(list(self._running)):
                    self._serve(pipe)
        finally:
            for process in self._running.values():
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)

    def _start(self, rank: int) -> None:
        self._started.add(rank)
        mine, theirs = Pipe()
        path = self._folder / f"rank{rank}"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for pipe in (mine, *self._running):  # else nobody would notice that this process has died
                pipe.close()
            _child(self._job, rank, path, self._quiet or rank != self._first, theirs)
        theirs.close()
        self._running[mine] = _Process(rank, pid, mine, path)

    def _serve(self, pipe: Connection) -> None:
        process = self._running[pipe]
        try:
            self._office.handle(process.rank, pipe, pipe.recv())
        except EOFError:
            del self._running[pipe]
            self.done[process.rank] = _finish(process)
            self._office.ended(process.rank)


def _finish(process: _Process) -> Trace:
    process.pipe.close()
    _, status = os.waitpid(process.pid, 0)
    if status != 0 or not process.path.exists():
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise PlanError(f"the process that ran rank {process.rank} {how}")
    result = pickle.loads(process.path.read_bytes())
    if isinstance(result, Exception):
        raise result
    return result


def discover(job: Job, first: int = 0) -> tuple[list[Trace], PostOffice]:
    """Traces of ``first`` and of every rank that it reaches through sends, receives and values that others know: one per
    pipeline stage. With a failure, only that rank's and the first's, if it is done.

    Must be called before this process has initialised the device.
    """
    importlib.import_module("torch._dynamo")  # which every optimizer imports: once here, not in every rank
    gc.freeze()  # so that collections in the ranks do not copy the pages that they share
    office = PostOffice()
    with tempfile.TemporaryDirectory(prefix="npu-plan-") as name:
        pool = _Pool(job, office, first, False, Path(name))
        pool.run()
    traces = [pool.done[rank] for rank in sorted(pool.done)]
    if failed := [trace for trace in traces if trace.failure]:
        traces = [trace for trace in traces if trace is failed[0] or trace.rank == first]
    return traces, office


def run_mirror(job: Job, rank: int, told: list[bytes | None]) -> Trace:
    """``rank`` alone, which learns from others what the rank it mirrors was ``told``."""
    with tempfile.TemporaryDirectory(prefix="npu-plan-") as name:
        pool = _Pool(job, Replay(told), rank, True, Path(name))
        pool.run()
    return pool.done[rank]


# ---- is one rank like another? --------------------------------------------------------------------------------------


def mirror_of(job: Job, traces: list[Trace]) -> tuple[int, Trace] | None:
    """A rank and what it should do: a member of the first one's collectives, else the last rank of all, as the last of
    ``traces``. None if all ranks were run."""
    taken = {trace.rank for trace in traces}
    first = traces[0]
    used = set(np.unique(actions(first)["what"][actions(first)["kind"] == COLLECTIVE]).tolist())
    for index in sorted(used, key=lambda i: -len(first.groups[i][1])):
        others = [rank for rank in first.groups[index][1] if rank not in taken]
        # The last member differs most: other server, other end of every group.
        if others and len(first.groups[index][1]) > 1:
            return others[-1], first
    return (job.world_size - 1, traces[-1]) if job.world_size - 1 not in taken else None


def signature(trace: Trace) -> list[tuple]:
    """What a rank did, without who it is: operators with their costs, collectives with their bytes."""
    names = [row[:2] + (round(row[3], 3),) for row in trace.rows]
    sizes = [len(members) for _, members in trace.groups]
    result = []
    for action in actions(trace):
        kind = int(action["kind"])
        if kind == LAUNCH:
            result.append((kind, names[action["what"]]))
        elif kind == COLLECTIVE:
            result.append((kind, sizes[action["what"]], int(action["value"])))
        elif kind in (SEND, RECEIVE):
            result.append((kind, sizes[action["what"]]))
    return result


def communication(of: list[tuple]) -> list[tuple]:
    """Of a signature, what ranks do together; in between they may do different work, as owners of different parameters."""
    return [entry for entry in of if entry[0] != LAUNCH]


def difference(a: Trace, b: Trace, *, only_communication: bool = False) -> str | None:
    """Why ``b`` is no mirror of ``a``, or None if it is."""
    left, right = signature(a), signature(b)
    if only_communication:
        left, right = communication(left), communication(right)
    for position, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine != theirs:
            return f"at action {position} rank {a.rank} does {_name(mine)} where rank {b.rank} does {_name(theirs)}"
    if len(left) != len(right):
        return f"rank {a.rank} does {len(left)} things on the device, rank {b.rank} does {len(right)}"
    return None


def _name(entry: tuple) -> str:
    if entry[0] == LAUNCH:
        return str(entry[1][0])
    return {COLLECTIVE: "a collective", SEND: "a send", RECEIVE: "a receive"}[entry[0]] + f" {entry[1:]}"
