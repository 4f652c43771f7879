"""torch_npu.contrib.function: functions that hardware has fused kernels for, from PyTorch's operators here."""

import math
from collections.abc import Callable

import torch

from torch_cann._refused import refused
from torch_cann.contrib.boxes import (
    npu_batched_multiclass_nms,
    npu_bbox_coder_decode_xywh2xyxy,
    npu_bbox_coder_encode_xyxy2xywh,
    npu_bbox_coder_encode_yolo,
    npu_ciou,
    npu_diou,
    npu_giou,
    npu_iou,
    npu_multiclass_nms,
    npu_ptiou,
    npu_single_level_responsible_flags,
)

__all__ = [
    "dropout_with_byte_mask",
    "fuse_add_softmax_dropout",
    "matmul_transpose",
    "npu_batched_multiclass_nms",
    "npu_bbox_coder_decode_xywh2xyxy",
    "npu_bbox_coder_encode_xyxy2xywh",
    "npu_bbox_coder_encode_yolo",
    "npu_ciou",
    "npu_diou",
    "npu_fast_condition_index_put",
    "npu_fused_attention",
    "npu_fused_attention_with_layernorm",
    "npu_giou",
    "npu_iou",
    "npu_multiclass_nms",
    "npu_ptiou",
    "npu_single_level_responsible_flags",
    "roll",
]

globals().update(refused(__name__))


def roll(x: torch.Tensor, shifts: int | tuple[int, ...], dims: int | tuple[int, ...]) -> torch.Tensor:
    """torch.roll()."""
    return torch.roll(x, shifts, dims)


def matmul_transpose(tensor1: torch.Tensor, tensor2: torch.Tensor) -> torch.Tensor:
    """``tensor1`` (..., m, k) times the transpose of ``tensor2`` (..., n, k): (..., m, n)."""
    return torch.matmul(tensor1, tensor2.transpose(-2, -1))


def npu_fast_condition_index_put(x: torch.Tensor, condition: torch.Tensor, value: float) -> torch.Tensor:
    """``x`` with ``value`` where ``condition``, a bool tensor of the same shape, is true; a new tensor."""
    if condition.dtype != torch.bool:
        raise TypeError(f"condition must be a bool tensor, but is {condition.dtype}")
    return torch.where(condition, torch.full_like(x, value), x)


def dropout_with_byte_mask(
    input1: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """torch.nn.functional.dropout()."""
    return torch.nn.functional.dropout(input1, p, training, inplace)


def fuse_add_softmax_dropout(
    training: bool,
    dropout: Callable[[torch.Tensor], torch.Tensor],
    attn_mask: torch.Tensor | None,
    attn_scores: torch.Tensor,
    attn_head_size: int,
    p: float = 0.5,
    dim: int = -1,
) -> torch.Tensor:
    """Weights of attention: ``dropout(softmax(attn_scores / sqrt(attn_head_size) + attn_mask))``.

    Args:
        training: with False nothing is dropped.
        dropout: what is applied to the weights, such as torch.nn.Dropout(p).
    """
    scores = attn_scores / math.sqrt(attn_head_size)
    weights = torch.softmax(scores if attn_mask is None else scores + attn_mask, dim)
    return dropout(weights) if training else weights
