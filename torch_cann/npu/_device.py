"""Cards: how many, which is current, what they are, and when the device is initialised."""

import os
from collections.abc import Callable
from typing import Any

import torch

from torch_cann import _C
from torch_cann._refused import refused
from torch_cann.npu._utils import _get_device_index, checked_device_index
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "can_device_access_peer",
    "current_blas_handle",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_sync_debug_mode",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "set_sync_debug_mode",
    "synchronize",
    "utilization",
]


def device_count() -> int:
    """Cards this process sees. Initialises nothing; follows ASCEND_RT_VISIBLE_DEVICES until something else does."""
    return _C._npu_getDeviceCount()


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    """Whether the device is in use in this process, by an explicit call or by a first operator."""
    return _C._npu_isInitialized() and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    return _C._npu_isInBadFork()


def _lazy_init() -> None:
    """Initialises the device. Raises RuntimeError in a process forked after initialisation, or without a card."""
    _C._npu_init()


def init() -> None:
    _lazy_init()


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Calls ``callable`` at once. torch.cuda defers until initialisation, for want of generators before; ours exist."""
    callable()


def current_device() -> int:
    _lazy_init()
    return _C._npu_getDevice()


def set_device(device: Any) -> None:
    """Makes ``device`` the current card of this thread. A negative index does nothing, as in torch.cuda."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _C._npu_setDevice(index)


def _exchange_device(device: int) -> int:
    """Makes ``device`` current and returns the card that was; -1 in, -1 out."""
    return _C._npu_exchangeDevice(device) if device >= 0 else -1


_maybe_exchange_device = _exchange_device


class device:
    """Context manager: the card ``device`` is current inside. None and negative indices change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        _maybe_exchange_device(self.prev_idx)


_DeviceGuard = device


class device_of(device):
    """Context manager: the card of a tensor or storage is current inside; nothing changes for those elsewhere."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "npu" else None)


def synchronize(device: Any = None) -> None:
    """Waits for all streams of the card. Kernels are complete when they return, so this checks the argument only."""
    _lazy_init()
    _C._npu_synchronize(_get_device_index(device, optional=True))


def get_device_properties(device_name: Any = None) -> "_C._NPUDeviceProperties":
    _lazy_init()
    return _C._npu_getDeviceProperties(checked_device_index(device_name))


def get_device_name(device_name: Any = None) -> str:
    return get_device_properties(device_name).name


# Read once: a setting of this package, which callers may clear from the environment later.
_CAPABILITY = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY")


def get_device_capability(device: Any = None) -> tuple[int, int] | None:
    """What TORCH_NPU_DEVICE_CAPABILITY ("major.minor") says, else None: Ascend chips have no compute capability."""
    if _CAPABILITY is None:
        return None
    try:
        major, minor = map(int, _CAPABILITY.split("."))
    except ValueError:
        raise ValueError(
            f"TORCH_NPU_DEVICE_CAPABILITY must read major.minor, for example 9.0, but is {_CAPABILITY!r}"
            + pta_error(ErrCode.VALUE)
        ) from None
    return major, minor


def can_device_access_peer(device_id: Any, peer_device_id: Any) -> bool:
    """Whether the card can read the other's memory: all cards of a server can, none reads itself as a peer."""
    _lazy_init()
    return checked_device_index(device_id) != checked_device_index(peer_device_id)


# SocVersion numbers of torch_npu: the 910B family begins at 220; 310B, which lacks bf16 training, is 240 to 243.
_FIRST_WITH_BF16 = 220
_ASCEND310B = range(240, 244)


def is_bf16_supported(including_emulation: bool = False) -> bool:
    """Whether the simulated chip computes in bfloat16."""
    version = _C._npu_get_soc_version()
    return including_emulation or (version >= _FIRST_WITH_BF16 and version not in _ASCEND310B)


_SYNC_DEBUG_MODES = ("default", "warn", "error")
_sync_debug_mode = 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Remembers "default", "warn" or "error" (0, 1, 2). No operator synchronises implicitly here, so none warns."""
    global _sync_debug_mode
    if debug_mode in _SYNC_DEBUG_MODES:
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode: {debug_mode!r}, not 0, 1, 2 or one of {_SYNC_DEBUG_MODES}"
            + pta_error(ErrCode.PARAM)
        )
    _sync_debug_mode = int(debug_mode)


def get_sync_debug_mode() -> int:
    return _sync_debug_mode


def ipc_collect() -> None:
    """Forgets memory received from other processes whose tensors are gone."""
    torch.multiprocessing.reductions.shared_cache.free_dead_references()


globals().update(refused(__name__))
