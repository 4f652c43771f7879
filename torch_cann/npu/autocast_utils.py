"""Autocast state of the npu device, in torch_npu's spelling."""

import torch

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "get_amp_supported_dtype",
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What torch.autocast("npu") accepts."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_autocast_enabled() -> bool:
    return torch.is_autocast_enabled("npu")


def set_autocast_enabled(enable: bool) -> None:
    torch.set_autocast_enabled("npu", enable)


def get_autocast_dtype() -> torch.dtype:
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    """Raises ValueError for a dtype that get_amp_supported_dtype() does not list."""
    if dtype not in get_amp_supported_dtype():
        raise ValueError(
            f"npu autocast works in {get_amp_supported_dtype()}, but got {dtype}" + pta_error(ErrCode.VALUE)
        )
    torch.set_autocast_dtype("npu", dtype)
