"""How work reaches the cards: the task queue, its time limit, host functions in a stream.

Kernels run at once on the calling thread, so these settings change no result; scripts set them and read them back.
"""

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_cann._refused import refused
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "are_compatible_impl_enabled",
    "get_task_queue_enable",
    "native_device",
    "npurt",
    "profile",
    "set_op_timeout_ms",
    "set_task_queue_enable",
    "use_compatible_impl",
]

globals().update(refused(__name__))

native_device = "npu"  # the device's name, an old spelling

_TASK_QUEUE_MODES = (0, 1, 2)


def _task_queue_from_environment() -> int:
    blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING", "0")
    if blocking not in ("0", "1"):
        raise ValueError(f"ASCEND_LAUNCH_BLOCKING must be 0 or 1, but is {blocking!r}" + pta_error(ErrCode.VALUE))
    if blocking == "1":
        return 0
    text = os.environ.get("TASK_QUEUE_ENABLE", "1")
    if text not in map(str, _TASK_QUEUE_MODES):
        raise ValueError(f"TASK_QUEUE_ENABLE must be 0, 1 or 2, but is {text!r}" + pta_error(ErrCode.VALUE))
    return int(text)


_task_queue: int | None = None
_compatible_impl = False


def set_task_queue_enable(mode: int) -> None:
    """Remembers how much host work is queued: 0 none, 1 kernel launches, 2 more. Raises ValueError for others."""
    global _task_queue
    if isinstance(mode, bool) or mode not in _TASK_QUEUE_MODES:
        raise ValueError(f"the task queue's mode must be 0, 1 or 2, but got {mode!r}" + pta_error(ErrCode.VALUE))
    _task_queue = mode


def get_task_queue_enable() -> int:
    """The mode set last, else 0 with ASCEND_LAUNCH_BLOCKING=1, else TASK_QUEUE_ENABLE, else 1."""
    return _task_queue_from_environment() if _task_queue is None else _task_queue


def set_op_timeout_ms(timeout: int) -> None:
    """Checks ``timeout``, milliseconds from 0 up. No kernel hangs here, so none is ended."""
    if isinstance(timeout, bool) or not isinstance(timeout, int) or timeout < 0:
        raise ValueError(
            f"the time limit of operators must be 0 or more milliseconds, but got {timeout!r}"
            + pta_error(ErrCode.VALUE)
        )


def use_compatible_impl(is_enable: bool) -> None:
    """Whether operators behave as PyTorch's own do to the last detail. They always do here."""
    global _compatible_impl
    if not isinstance(is_enable, bool):
        raise TypeError(f"use_compatible_impl() expects True or False, but got {is_enable!r}" + pta_error(ErrCode.TYPE))
    _compatible_impl = is_enable


def are_compatible_impl_enabled() -> bool:
    """What use_compatible_impl() was told last."""
    return _compatible_impl


def npurt() -> ModuleType:
    """The runtime's registration of host memory and its streams, see torch_cann/acl/npurt.py."""
    return importlib.import_module("torch_cann.acl.npurt")


# --- host functions ---------------------------------------------------------------------------------------------------

_subscribed: set[torch.Stream] = set()


def _subscribe_report(stream: torch.Stream) -> None:
    """Lets host functions be put into ``stream``."""
    _subscribed.add(stream)


def _unsubscribe_report(stream: torch.Stream) -> None:
    _subscribed.discard(stream)


def _launch_host_func(stream: torch.Stream, fn: Callable[[Any], None], user_data: Any) -> None:
    """Calls ``fn(user_data)`` after the work in ``stream``, which is done: at once.

    Raises RuntimeError unless _subscribe_report() named the stream.
    """
    if stream not in _subscribed:
        raise RuntimeError(
            f"host functions in {stream} need torch.npu._subscribe_report(stream) first" + pta_error(ErrCode.PARAM)
        )
    fn(user_data)
