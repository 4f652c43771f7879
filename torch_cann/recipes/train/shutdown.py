"""SIGTERM and Ctrl-C ask a run to end after its step, with a checkpoint; a second Ctrl-C ends it at once."""

import signal
import threading
from types import FrameType
from typing import Any


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
