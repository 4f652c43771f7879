"""The ranks that differ: one process each, found by following who sends to whom, and checked against a second member."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

from torch_cann.plan.errors import PlanError
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


def peers(trace: Trace) -> set[int]:
    """Global ranks that this rank sends to or receives from."""
    table = actions(trace)
    return {int(rank) for rank in np.unique(table["value"][np.isin(table["kind"], (SEND, RECEIVE))])}


def _child(job: Job, rank: int, path: Path, quiet: bool) -> None:
    """The forked process: never returns."""
    code = 0
    try:
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
        path.write_bytes(pickle.dumps(run(job, rank)))
    except PlanError as error:
        path.write_bytes(pickle.dumps(error))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start(job: Job, rank: int, folder: Path, quiet: bool) -> tuple[int, Path]:
    path = folder / f"rank{rank}"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(job, rank, path, quiet)
    return pid, path


def _finish(pid: int, path: Path, rank: int) -> Trace:
    _, status = os.waitpid(pid, 0)
    if status != 0 or not path.exists():
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise PlanError(f"the process that ran rank {rank} {how}")
    result = pickle.loads(path.read_bytes())
    if isinstance(result, PlanError):
        raise result
    return result


def run_ranks(job: Job, wanted: list[int], *, quiet: bool = True, parallel: int | None = None) -> list[Trace]:
    """Runs the given ranks, each in a process forked from this one, a few at a time. Output of all but rank 0 is
    dropped when ``quiet``.

    Must be called before this process has initialised the device.
    """
    limit = parallel or max(1, os.cpu_count() or 1)
    traces = []
    with tempfile.TemporaryDirectory(prefix="npu-plan-") as name:
        running: list[tuple[int, Path, int]] = []
        for rank in wanted:
            if len(running) >= limit:
                pid, path, which = running.pop(0)
                traces.append(_finish(pid, path, which))
            running.append((*_start(job, rank, Path(name), quiet and rank != wanted[0]), rank))
        for pid, path, which in running:
            traces.append(_finish(pid, path, which))
    return traces


def discover(job: Job, first: int = 0) -> list[Trace]:
    """Traces of ``first`` and of every rank that it reaches through sends and receives: one per pipeline stage.

    Each rank names its neighbours only once it has run, so idle processors run the ranks that would follow at the same
    distance; those that turn out not to be reached are dropped.
    """
    done: dict[int, Trace] = {}
    reached, wanted = {first}, [first]
    while wanted:
        for trace in run_ranks(job, wanted, quiet=bool(done)):
            done[trace.rank] = trace
            if trace.failure and trace.rank in reached:
                return [done[first], trace] if trace.rank != first else [trace]
        reached = _closure(done, first)
        wanted = sorted(reached - done.keys())
        wanted += _guesses(wanted, reached, done, job)
    return [done[rank] for rank in sorted(reached)]


def _closure(done: dict[int, Trace], first: int) -> set[int]:
    reached, open_ranks = set(), [first]
    while open_ranks:
        rank = open_ranks.pop()
        if rank not in reached:
            reached.add(rank)
            open_ranks += peers(done[rank]) if rank in done else ()
    return reached


def _guesses(wanted: list[int], reached: set[int], done: dict[int, Trace], job: Job) -> list[int]:
    room = (os.cpu_count() or 1) - len(wanted)
    if not wanted or room <= 0:
        return []
    stride = wanted[-1] - max((rank for rank in reached if rank < wanted[-1]), default=wanted[-1])
    following = (wanted[-1] + stride * i for i in range(1, room + 1))
    return [rank for rank in following if stride and rank < job.world_size and rank not in done]


# ---- is one rank like another? --------------------------------------------------------------------------------------


def mirror_of(job: Job, traces: list[Trace]) -> int | None:
    """A rank that should do what one of ``traces`` does: of the first one's collectives, else the last; None if alone."""
    taken = {trace.rank for trace in traces}
    first = traces[0]
    used = set(np.unique(actions(first)["what"][actions(first)["kind"] == COLLECTIVE]).tolist())
    for index in sorted(used, key=lambda i: -len(first.groups[i][1])):
        others = [rank for rank in first.groups[index][1] if rank not in taken]
        # The last member differs most: other server, other end of every group.
        if others and len(first.groups[index][1]) > 1:
            return others[-1]
    return job.world_size - 1 if job.world_size > 1 and job.world_size - 1 not in taken else None


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


def difference(a: Trace, b: Trace) -> str | None:
    """Why ``b`` is no mirror of ``a``, or None if it is."""
    left, right = signature(a), signature(b)
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
