"""Whether mixed precision can work at all."""

from torch_cann import _C

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """True when this process sees no NPU."""
    return _C._npu_getDeviceCount() == 0
