"""Which card an argument means."""

from typing import Any

import torch

from torch_cann import _C
from torch_cann.utils._error_code import ErrCode, pta_error


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of the card that ``device`` (an int, "npu", "npu:1", a torch.device or a ``torch.npu.device``) names.

    None, and a device without an index, mean the current card if ``optional``, else raise ValueError. The CPU is -1 if
    ``allow_cpu``. Another kind of device raises ValueError, another kind of argument TypeError. The index is not
    compared with the number of cards.
    """
    if isinstance(device, bool):
        raise TypeError(f"expected an npu device or its index, but got {device!r}" + pta_error(ErrCode.TYPE))
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "npu":
            raise ValueError(f"Expected a npu device, but got: {device}" + pta_error(ErrCode.VALUE))
        index = device.index
    elif device is None:
        index = None
    elif isinstance(getattr(device, "idx", None), int):  # torch.npu.device
        index = device.idx
    else:
        raise TypeError(
            f"expected an npu device or its index, but got {device!r} of type {type(device).__name__}"
            + pta_error(ErrCode.TYPE)
        )
    if index is not None:
        return index
    if not optional:
        raise ValueError(
            f"Expected a npu device with a specified index or an integer, but got: {device}" + pta_error(ErrCode.VALUE)
        )
    return _C._npu_getDevice()


def checked_device_index(device: Any) -> int:
    """The same, and AssertionError when this process sees no such card (the type that torch.cuda raises)."""
    index = _get_device_index(device, optional=True)
    count = _C._npu_getDeviceCount()
    if not 0 <= index < count:
        seen = f"{count} NPU, numbered from 0" if count else "no NPU"
        raise AssertionError(
            f"Invalid device id: {device!r} asked for, this process sees {seen}" + pta_error(ErrCode.VALUE)
        )
    return index
