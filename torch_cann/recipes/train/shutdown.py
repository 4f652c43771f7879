"""SIGTERM and Ctrl-C ask a run to end after its step, with a checkpoint; a second Ctrl-C ends it at once."""

import signal
import threading
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from torch_cann.recipes.train._device import device_module


class GracefulShutdown:
    """Inside, ``requested`` becomes true on SIGTERM or SIGINT. Outside the main thread signals are left alone."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    def __enter__(self) -> "GracefulShutdown":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


class StopVote:
    """Whether any rank was asked to stop, so that all do after the same step.

    What is read is the vote of the step before: its result has long arrived, so the host goes on queueing work. Ranks
    therefore stop one step after the signal; a single process stops at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._alone = not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1
        self._previous: tuple[torch.Tensor, Any] | None = None

    def __call__(self, requested: bool) -> bool:
        """Casts this rank's vote; all ranks call, after every step."""
        if self._alone:
            return requested
        previous, self._previous = self._previous, self._cast(requested)
        if previous is None:
            return False
        answer, arrived = previous
        if arrived is not None:
            arrived.synchronize()
        return bool(answer)

    def _cast(self, requested: bool) -> tuple[torch.Tensor, Any]:
        vote = torch.tensor(float(requested), device=self._device)
        dist.all_reduce(vote, dist.ReduceOp.MAX)
        if self._device.type == "cpu":
            return vote, None
        answer = vote.to("cpu", non_blocking=True)
        arrived = device_module(self._device).Event()
        arrived.record()
        return answer, arrived
