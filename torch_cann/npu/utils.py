"""torch.npu.utils, where torch_npu defines the device functions: their second address here, and the chip's facts."""

import math

import torch

from torch_cann import _C
from torch_cann.npu._device import (
    current_blas_handle,
    current_device,
    device,
    device_of,
    get_sync_debug_mode,
    ipc_collect,
    is_bf16_supported,
    set_device,
    set_sync_debug_mode,
    synchronize,
)
from torch_cann.npu._refused import refused_function
from torch_cann.npu.streams import StreamContext, current_stream, default_stream, set_stream, stream
from torch_cann.version import CANN, get_cann_version

__all__ = [
    "StreamContext",
    "clear_npu_overflow_flag",
    "current_blas_handle",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_of",
    "get_cann_version",
    "get_npu_overflow_flag",
    "get_soc_version",
    "get_sync_debug_mode",
    "ipc_collect",
    "is_bf16_supported",
    "is_support_inf_nan",
    "npu_check_overflow",
    "set_device",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
]


def get_soc_version() -> int:
    """The chip as torch_npu numbers it, for example 221 for Ascend910B2. Initialises nothing."""
    return _C._npu_get_soc_version()


def _is_gte_cann_version(version: str, module: str = "CANN") -> bool:
    """Whether the toolkit is of ``version`` or later, both read as dotted numbers ("8.1.RC1" counts as 8.1)."""

    def numbers(text: str) -> list[int]:
        parts = []
        for part in text.split("."):
            if not part.isdigit():
                break
            parts.append(int(part))
        if not parts:
            raise ValueError(f"expected a CANN version like 8.1.0 or 8.1.RC1, but got {text!r}")
        return parts

    return numbers(CANN) >= numbers(version)


def is_support_inf_nan() -> bool:
    """Overflow gives inf and nan, as IEEE says and as 910B-class chips do by default; never saturated values."""
    return True


_NO_FLAG = "overflow gives inf and nan here and sets no flag, call npu_check_overflow(grad)"
get_npu_overflow_flag = refused_function("get_npu_overflow_flag", _NO_FLAG)
clear_npu_overflow_flag = refused_function("clear_npu_overflow_flag", _NO_FLAG)


def npu_check_overflow(grad: torch.Tensor | float) -> bool:
    """Whether a gradient holds inf or nan."""
    if isinstance(grad, torch.Tensor):
        return not bool(torch.isfinite(grad).all())
    return not math.isfinite(grad)
