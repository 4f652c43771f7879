"""Saving in the background, and torch.load for files with npu tensors."""

import os
import pickle
import threading
from typing import Any

import torch
from torch.serialization import DEFAULT_PROTOCOL
from torch.utils import _pytree as pytree

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["load", "save_async"]


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """torch.load(): npu storages need nothing of their own."""
    return torch.load(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **pickle_load_args)


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) and value.device.type == "npu" else value


def save_async(
    obj: object,
    f: str | os.PathLike,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    model: torch.nn.Module | None = None,
) -> None:
    """torch.save() in a thread, after npu tensors of ``obj`` were copied to the host; training may go on meanwhile.

    The file gets its name when it is whole: it is written beside it and renamed. An error of the thread is raised by
    threading.excepthook. Interpreter exit waits for the thread. ``model`` is accepted; the copy is complete when this
    returns, so its next step has nothing to wait for.
    """
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"save_async() writes to a path, but got {type(f).__name__}" + pta_error(ErrCode.TYPE))
    on_host = pytree.tree_map(_to_host, obj)
    path, part = os.fspath(f), f"{os.fspath(f)}.part{os.getpid()}"

    def write() -> None:
        torch.save(
            on_host, part, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record
        )
        os.replace(part, path)

    thread = threading.Thread(target=write, name="save_async")
    thread.start()
