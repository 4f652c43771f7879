"""The import name torch_npu, so that scripts written for Ascend NPUs run unchanged. All of it is torch_cann."""

from torch_cann import _C as _C
from torch_cann import npu, utils
from torch_cann._package import HiFloat8Tensor, erase_stream, float4_e1m2fn_x2, hifloat8, matmul_checksum
from torch_cann._package import _apply_all_patches as _apply_all_patches
from torch_cann._package import _apply_patches as _apply_patches
from torch_cann._package import unsupported_dtype as unsupported_dtype
from torch_cann._torch_npu import __getattr__ as __getattr__
from torch_cann.ops import Format as Format
from torch_cann.version import TORCH_NPU as __version__

__all__ = [
    "Format",
    "HiFloat8Tensor",
    "__version__",
    "erase_stream",
    "float4_e1m2fn_x2",
    "hifloat8",
    "matmul_checksum",
    "npu",
    "utils",
]
