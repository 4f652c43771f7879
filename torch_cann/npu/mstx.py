"""Marks and ranges in a profile (msTX). They appear in torch.profiler's trace under their message."""

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["annotate", "mstx"]


def _checked(message: str) -> str:
    if not isinstance(message, str) or not message:
        raise TypeError(
            f"the message of a mstx mark or range must be a text that is not empty, but got {message!r}"
            + pta_error(ErrCode.TYPE)
        )
    return message


class mstx:
    """Static functions, as in torch_npu. ``stream`` and ``domain`` are accepted: there is one host timeline."""

    _next_id = itertools.count(1)
    _open: dict[int, torch.autograd.profiler.record_function] = {}
    _pushed = threading.local()

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = "default") -> None:
        with torch.autograd.profiler.record_function(_checked(message)):
            pass

    @staticmethod
    def range_start(message: str, stream: Any = None, domain: str = "default") -> int:
        """Opens a range and returns its id, above 0, for range_end()."""
        scope = torch.autograd.profiler.record_function(_checked(message))
        scope.__enter__()
        range_id = next(mstx._next_id)
        mstx._open[range_id] = scope
        return range_id

    @staticmethod
    def range_end(range_id: int, domain: str = "default") -> None:
        """Closes a range. Raises ValueError for an id that is not open."""
        scope = mstx._open.pop(range_id, None)
        if scope is None:
            raise ValueError(f"no mstx range with id {range_id!r} is open" + pta_error(ErrCode.VALUE))
        scope.__exit__(None, None, None)

    @staticmethod
    def range_push(message: str, stream: Any = None, domain: str = "default") -> int:
        """Opens a range inside those of this thread; returns how deep it is, 0 for the outermost."""
        ids = mstx._pushed.__dict__.setdefault("ids", [])
        ids.append(mstx.range_start(message))
        return len(ids) - 1

    @staticmethod
    def range_pop(domain: str = "default") -> int:
        """Closes the range that range_push() opened last in this thread; returns how deep it was."""
        ids = mstx._pushed.__dict__.setdefault("ids", [])
        if not ids:
            raise ValueError("range_pop() without a range_push() before it in this thread" + pta_error(ErrCode.VALUE))
        mstx.range_end(ids.pop())
        return len(ids)

    @staticmethod
    def mstx_range(message: str, stream: Any = None, domain: str = "default") -> Callable[[Callable], Callable]:
        """Decorator: each call of the function is a range."""

        def decorate(function: Callable) -> Callable:
            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with torch.autograd.profiler.record_function(_checked(message)):
                    return function(*args, **kwargs)

            return wrapped

        return decorate


class annotate(contextlib.ContextDecorator):
    """Context manager and decorator: what runs inside is a range."""

    def __init__(self, message: str = "", stream: Any = None, domain: str = "default") -> None:
        self.message = _checked(message)

    def __enter__(self) -> "annotate":
        mstx.range_push(self.message)
        return self

    def __exit__(self, *exc: object) -> None:
        mstx.range_pop()
