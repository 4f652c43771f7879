"""torch_npu.contrib: layers and functions of vision and language models, and the transfer of CUDA scripts."""

import importlib
from typing import Any

_FUNCTIONS = (
    "fuse_add_softmax_dropout npu_batched_multiclass_nms npu_bbox_coder_decode_xywh2xyxy "
    "npu_bbox_coder_encode_xyxy2xywh npu_bbox_coder_encode_yolo npu_ciou npu_diou npu_fast_condition_index_put "
    "npu_fused_attention npu_fused_attention_with_layernorm npu_giou npu_iou npu_multiclass_nms npu_ptiou "
    "npu_single_level_responsible_flags"
).split()
_MODULES = (
    "BiLSTM ChannelShuffle DCNv2 FastBatchNorm1d FastBatchNorm2d FastBatchNorm3d FastSyncBatchNorm Focus "
    "FusedColorJitter LabelSmoothingCrossEntropy LinearA8W8Quant LinearQuant LinearWeightQuant Mish "
    "ModulatedDeformConv MultiheadAttention NpuCachedDropout NpuDropPath NpuFairseqDropout PSROIPool Prefetcher "
    "ROIAlign SiLU Swish"
).split()

__all__ = [*_FUNCTIONS, *_MODULES]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: scripts that only want transfer_to_npu need none of it."""
    for names, module in ((_FUNCTIONS, "function"), (_MODULES, "module")):
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module 'torch_npu.contrib' has no attribute '{name}'")
