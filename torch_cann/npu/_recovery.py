"""What training frameworks call when a card has failed: stop it, restart it, look for damaged memory.

A simulated card has no faults, so the answers are those of a healthy one.
"""

from typing import Any

import torch

from torch_cann._refused import refused
from torch_cann.npu._device import synchronize
from torch_cann.npu._utils import checked_device_index
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["check_uce_in_memory", "restart_device", "stop_device", "stress_detect"]

globals().update(refused(__name__))

_STRESS_KINDS = ("aic", "p2p")
_check_enabled = False


def stop_device(device_id: int) -> None:
    """Ends the work queued on a card. There is none: kernels are complete when they return."""
    checked_device_index(device_id)


def restart_device(
    device_id: int, rebuild_all_resources: bool = False, disable_tensor_unsafe_check: bool = False
) -> None:
    """Makes a stopped card usable again. Its memory, and so every tensor, stays as it is."""
    synchronize(checked_device_index(device_id))


def check_uce_in_memory(device_id: int) -> int:
    """0: the card's memory has no uncorrectable error."""
    checked_device_index(device_id)
    return 0


def stress_detect(detect_type: str = "aic") -> int:
    """0: the cards pass the test. Raises ValueError for another kind of test than "aic" or "p2p"."""
    if detect_type not in _STRESS_KINDS:
        raise ValueError(
            f"stress_detect() knows the tests {_STRESS_KINDS}, but got {detect_type!r}" + pta_error(ErrCode.VALUE)
        )
    return 0


def _checked_tensor(tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "npu":
        raise RuntimeError(
            f"expected a tensor on npu, but got {getattr(tensor, 'device', type(tensor).__name__)}"
            + pta_error(ErrCode.PARAM)
        )
    return tensor


def check_npu_tensor_is_safe(tensor_obj: torch.Tensor) -> bool:
    """True: memory of a simulated card is never damaged."""
    _checked_tensor(tensor_obj)
    return True


def check_npu_storage_is_safe(storage_obj: Any) -> bool:
    return True


def update_npu_tensor_to_safe(tensor_obj: torch.Tensor) -> None:
    """Declares the content valid, which it is."""
    _checked_tensor(tensor_obj)


def update_npu_storage_to_safe(storage_obj: Any) -> None:
    """The same for a storage."""


def set_npu_tensor_unsafe_check_flag(flag: bool) -> None:
    global _check_enabled
    _check_enabled = bool(flag)


def get_npu_tensor_unsafe_check_flag() -> bool:
    """What set_npu_tensor_unsafe_check_flag() was told last."""
    return _check_enabled
