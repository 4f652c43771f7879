"""torch_npu.utils: helpers of training loops, versions, error texts, the environment report."""

import importlib

from torch_cann.utils._asd import register_asd_hook as register_asd_hook
from torch_cann.utils._asd import set_asd_loss_scale as set_asd_loss_scale
from torch_cann.utils.affinity import reset_thread_affinity, set_thread_affinity
from torch_cann.utils.combine_tensors import get_part_combined_tensor, is_combined_tensor_valid, npu_combine_tensors
from torch_cann.version import get_cann_version

__all__ = [
    "FlopsCounter",
    "get_cann_version",
    "get_part_combined_tensor",
    "is_combined_tensor_valid",
    "npu_combine_tensors",
    "reset_thread_affinity",
    "save_async",
    "set_thread_affinity",
]

# Loaded when asked for: what they need would slow `import torch` down.
_LAZY = {"FlopsCounter": "flops_count", "save_async": "serialization"}


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'torch_npu.utils' has no attribute '{name}'")
