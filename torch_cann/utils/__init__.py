"""torch_npu.utils: versions, error texts, the environment report."""

from torch_cann.version import get_cann_version

__all__ = ["get_cann_version"]
