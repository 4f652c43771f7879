"""Groups of processes for the tests: each is a rank of a default process group and runs the functions it is given.

Starting a rank costs seconds, running a function in it almost nothing, so tests share the ranks unless they break them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

_CONTEXT = multiprocessing.get_context("spawn")


class RankFailure(AssertionError):
    """A rank raised, died or did not answer; the text says which and why."""


def device():
    """The card of the calling rank."""
    import torch
    import torch.distributed as dist

    return torch.device("npu", dist.get_rank())


def refusal(function: Callable[[], Any], error: type[BaseException] = RuntimeError) -> str:
    """The text of the `error` that `function` must raise. For use inside a rank."""
    try:
        function()
    except error as raised:
        return str(raised)
    raise AssertionError("nothing was raised")


def _serve(
    rank: int, size: int, store: str, backend: str | None, timeout: float, environment: dict[str, str], connection
) -> None:
    os.environ.update(environment)
    import torch
    import torch.distributed as dist
    import torch_npu  # noqa: F401

    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    if backend is not None:
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
        )
    connection.send(("ready", None))
    while (task := connection.recv()) is not None:
        function, arguments = task
        try:
            connection.send(("returned", function(*arguments)))
        except Exception:
            connection.send(("raised", traceback.format_exc()))
    if dist.is_initialized():
        dist.destroy_process_group()


class Ranks:
    """`size` processes, rank r on card r.

    Args:
        size: number of ranks.
        folder: where the ranks find each other; a file is made there.
        backend: of the default group; None leaves it to the test.
        timeout: of the default group, seconds.
        **environment: variables of the ranks.
    """

    def __init__(self, size: int, folder, backend: str | None = "hccl", timeout: float = 60, **environment: str):
        self.size = size
        store = os.path.join(folder, uuid.uuid4().hex)
        environment.setdefault("OMP_NUM_THREADS", "1")
        self._connections = []
        self._processes = []
        for rank in range(size):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_serve, args=(rank, size, store, backend, timeout, environment, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        self.alive = True
        self._collect(120)

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float = 60) -> list[Any]:
        """What ``function(*arguments)`` returned on each rank. The function must be importable.

        Raises RankFailure, after which the ranks are gone.
        """
        for connection in self._connections:
            connection.send((function, arguments))
        return self._collect(seconds)

    def _collect(self, seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        results = []
        complaints = []
        for rank, connection in enumerate(self._connections):
            try:
                if not connection.poll(max(deadline - time.monotonic(), 0.5)):
                    complaints.append(f"rank {rank} did not answer within {seconds} s")
                    continue
                kind, value = connection.recv()
            except (EOFError, ConnectionResetError):
                self._processes[rank].join(5)
                complaints.append(f"rank {rank} ended with exit code {self._processes[rank].exitcode}")
                continue
            if kind == "raised":
                complaints.append(f"rank {rank} raised:\n{value}")
            results.append(value)
        if complaints:
            self.kill()
            raise RankFailure("\n".join(complaints))
        return results

    def exit_codes(self, seconds: float = 30) -> list[int | None]:
        """Asks the ranks to end, and how they did; None for one that still runs."""
        for connection in self._connections:
            try:
                connection.send(None)
            except (BrokenPipeError, ConnectionResetError):
                pass  # gone already
        deadline = time.monotonic() + seconds
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0.1))
        self.alive = False
        return [process.exitcode for process in self._processes]

    def kill(self) -> None:
        self.alive = False
        for process in self._processes:
            process.kill()
            process.join()
