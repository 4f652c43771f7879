"""acl.rt: cards, streams, events and memory. Contexts, streams and events are integers, as in CANN."""

import ctypes
import itertools
from typing import Any

import torch

from torch_cann import _C
from torch_cann.acl._codes import INVALID_DEVICE, INVALID_HANDLE, INVALID_PARAM, OUT_OF_MEMORY, SUCCESS

__all__ = [
    "create_context",
    "create_event",
    "create_stream",
    "destroy_context",
    "destroy_event",
    "destroy_stream",
    "free",
    "free_host",
    "get_context",
    "get_device",
    "get_device_count",
    "get_mem_info",
    "get_run_mode",
    "malloc",
    "malloc_host",
    "memcpy",
    "memcpy_async",
    "memset",
    "record_event",
    "reset_device",
    "set_context",
    "set_device",
    "synchronize_device",
    "synchronize_event",
    "synchronize_stream",
]

_RUN_ON_HOST = 1
_COPY_KINDS = range(5)  # host to host, host to device, device to host, device to device, and "default"
_handles: dict[int, Any] = {}  # contexts (a card's index), streams and events
_numbers = itertools.count(1)
_device_blocks: dict[int, int] = {}  # address -> bytes
_host_blocks: dict[int, ctypes.Array] = {}


def _is_card(device_id: Any) -> bool:
    return isinstance(device_id, int) and 0 <= device_id < _C._npu_getDeviceCount()


def get_device_count() -> tuple[int, int]:
    """Cards this process sees, and the error code. Initialises nothing."""
    return _C._npu_getDeviceCount(), SUCCESS


def set_device(device_id: int) -> int:
    if not _is_card(device_id):
        return INVALID_DEVICE
    _C._npu_setDevice(device_id)
    return SUCCESS


def get_device() -> tuple[int, int]:
    return _C._npu_getDevice(), SUCCESS


def reset_device(device_id: int) -> int:
    """Ends the use of a card. Its memory stays until it is freed."""
    return SUCCESS if _is_card(device_id) else INVALID_DEVICE


def synchronize_device() -> int:
    torch.npu.synchronize()
    return SUCCESS


def get_run_mode() -> tuple[int, int]:
    """1: the program runs on the host."""
    return _RUN_ON_HOST, SUCCESS


def get_mem_info(attr: int = 1) -> tuple[int, int, int]:
    """Free and total bytes of the current card. ``attr`` chooses a kind of memory; there is one."""
    free_bytes, total = torch.npu.mem_get_info()
    return free_bytes, total, SUCCESS


# --- handles ----------------------------------------------------------------------------------------------------------


def _new_handle(value: Any) -> int:
    handle = next(_numbers)
    _handles[handle] = value
    return handle


def _drop(handle: int, kind: type) -> int:
    if not isinstance(_handles.get(handle), kind):
        return INVALID_HANDLE
    del _handles[handle]
    return SUCCESS


def create_context(device_id: int) -> tuple[int, int]:
    code = set_device(device_id)
    return (_new_handle(device_id), SUCCESS) if code == SUCCESS else (0, code)


def destroy_context(context: int) -> int:
    return _drop(context, int)


def set_context(context: int) -> int:
    device_id = _handles.get(context)
    return set_device(device_id) if isinstance(device_id, int) else INVALID_HANDLE


def get_context() -> tuple[int, int]:
    """A context of the current card."""
    return _new_handle(_C._npu_getDevice()), SUCCESS


def create_stream() -> tuple[int, int]:
    return _new_handle(torch.npu.Stream()), SUCCESS


def destroy_stream(stream: int) -> int:
    return _drop(stream, torch.Stream)


def synchronize_stream(stream: int) -> int:
    """0 is the default stream."""
    if stream == 0:
        return synchronize_device()
    if not isinstance(_handles.get(stream), torch.Stream):
        return INVALID_HANDLE
    _handles[stream].synchronize()
    return SUCCESS


def create_event() -> tuple[int, int]:
    return _new_handle(torch.npu.Event(enable_timing=True)), SUCCESS


def destroy_event(event: int) -> int:
    return _drop(event, torch.Event)


def record_event(event: int, stream: int) -> int:
    if not isinstance(_handles.get(event), torch.Event):
        return INVALID_HANDLE
    if stream != 0 and not isinstance(_handles.get(stream), torch.Stream):
        return INVALID_HANDLE
    _handles[event].record(_handles[stream] if stream else torch.npu.default_stream())
    return SUCCESS


def synchronize_event(event: int) -> int:
    if not isinstance(_handles.get(event), torch.Event):
        return INVALID_HANDLE
    _handles[event].synchronize()
    return SUCCESS


# --- memory -----------------------------------------------------------------------------------------------------------


def malloc(size: int, policy: int = 0) -> tuple[int, int]:
    """Address of ``size`` bytes on the current card, and the error code. ``policy`` is about pages; accepted."""
    if not isinstance(size, int) or size <= 0:
        return 0, INVALID_PARAM
    try:
        ptr = torch.npu.caching_allocator_alloc(size)
    except torch.OutOfMemoryError:
        return 0, OUT_OF_MEMORY
    _device_blocks[ptr] = size
    return ptr, SUCCESS


def free(ptr: int) -> int:
    if _device_blocks.pop(ptr, None) is None:
        return INVALID_PARAM
    torch.npu.caching_allocator_delete(ptr)
    return SUCCESS


def malloc_host(size: int) -> tuple[int, int]:
    """Address of ``size`` bytes of the host, zeroed."""
    if not isinstance(size, int) or size <= 0:
        return 0, INVALID_PARAM
    block = (ctypes.c_char * size)()
    _host_blocks[ctypes.addressof(block)] = block
    return ctypes.addressof(block), SUCCESS


def free_host(ptr: int) -> int:
    return INVALID_PARAM if _host_blocks.pop(ptr, None) is None else SUCCESS


def _reaches_beyond(ptr: int, count: int) -> bool:
    """Whether ``count`` bytes at ``ptr``, the start of a block from here, do not fit; other addresses are not known."""
    block = _host_blocks.get(ptr)
    size = _device_blocks.get(ptr, len(block) if block is not None else None)
    return size is not None and count > size


def memcpy(dst: int, dest_max: int, src: int, count: int, direction: int) -> int:
    """Copies ``count`` bytes; ``dest_max`` is the room at ``dst``. All memory is the host's, whatever ``direction``."""
    if direction not in _COPY_KINDS or not dst or not src or not 0 <= count <= dest_max:
        return INVALID_PARAM
    if _reaches_beyond(dst, count) or _reaches_beyond(src, count):
        return INVALID_PARAM
    ctypes.memmove(dst, src, count)
    return SUCCESS


def memcpy_async(dst: int, dest_max: int, src: int, count: int, direction: int, stream: int) -> int:
    """The same in a stream, which is idle: at once."""
    if stream != 0 and not isinstance(_handles.get(stream), torch.Stream):
        return INVALID_HANDLE
    return memcpy(dst, dest_max, src, count, direction)


def memset(dev_ptr: int, max_count: int, value: int, count: int) -> int:
    """Sets ``count`` bytes to ``value``, 0 to 255."""
    if not dev_ptr or not 0 <= count <= max_count or not 0 <= value <= 255 or _reaches_beyond(dev_ptr, count):
        return INVALID_PARAM
    ctypes.memset(dev_ptr, value, count)
    return SUCCESS
