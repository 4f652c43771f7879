"""torch.npu.utils, where torch_npu defines the device functions: their second address here, and the chip's facts."""

import math

import torch

from torch_cann import _C
from torch_cann._refused import refused
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
from torch_cann.npu._launch import get_task_queue_enable, set_op_timeout_ms, set_task_queue_enable
from torch_cann.npu._recovery import check_uce_in_memory, stress_detect
from torch_cann.npu.npu_config import finalize_dump, init_dump, set_dump
from torch_cann.npu.streams import StreamContext, current_stream, default_stream, set_stream, stream
from torch_cann.utils._error_code import ErrCode, pta_error
from torch_cann.version import CANN, get_cann_version

__all__ = [
    "StreamContext",
    "check_uce_in_memory",
    "clear_npu_overflow_flag",
    "current_blas_handle",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_of",
    "finalize_dump",
    "get_cann_version",
    "get_npu_overflow_flag",
    "get_soc_version",
    "get_sync_debug_mode",
    "get_task_queue_enable",
    "init_dump",
    "ipc_collect",
    "is_bf16_supported",
    "is_force_overflow_check",
    "is_support_inf_nan",
    "npu_check_overflow",
    "obfuscation_calculate",
    "obfuscation_finalize",
    "obfuscation_initialize",
    "set_device",
    "set_dump",
    "set_op_timeout_ms",
    "set_stream",
    "set_sync_debug_mode",
    "set_task_queue_enable",
    "stream",
    "stress_detect",
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
            raise ValueError(
                f"expected a CANN version like 8.1.0 or 8.1.RC1, but got {text!r}" + pta_error(ErrCode.VALUE)
            )
        return parts

    return numbers(CANN) >= numbers(version)


def is_support_inf_nan() -> bool:
    """Overflow gives inf and nan, as IEEE says and as 910B-class chips do by default; never saturated values."""
    return True


globals().update(refused(__name__))


def is_force_overflow_check() -> bool:
    """Whether overflow is looked for in the flag of saturating chips. There is no such flag here."""
    return False


def npu_check_overflow(grad: torch.Tensor | float) -> bool:
    """Whether a gradient holds inf or nan."""
    if isinstance(grad, torch.Tensor):
        return not bool(torch.isfinite(grad).all())
    return not math.isfinite(grad)
