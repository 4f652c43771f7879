"""The parts of batch normalisation between which torch.nn.SyncBatchNorm communicates.

ATen has them for CUDA only. Inputs are (N, C, ...), statistics (C,) or, of W ranks, (W, C), all on one card. Sums are
taken in float32 for 16-bit inputs and in the input's own type otherwise. `invstd` is 1 / sqrt(variance + eps) with the
biased variance. Formulas: Ioffe and Szegedy, "Batch Normalization" (2015), section 3; variances of several ranks are
joined by the law of total variance.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _per_channel(t: Tensor, like: Tensor) -> Tensor:
    """(C,) in a shape that broadcasts over (N, C, ...)."""
    return t.view(1, -1, *[1] * (like.dim() - 2))


def _sums(t: Tensor) -> Tensor:
    """(N, C, ...) -> (C,)"""
    return t.sum([dimension for dimension in range(t.dim()) if dimension != 1])


def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(mean, invstd) of this rank's rows."""
    x = _wide(input)
    others = [dimension for dimension in range(x.dim()) if dimension != 1]
    variance, mean = torch.var_mean(x, others, correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """(mean, invstd) of all rows, from those of each rank (W, C) and its number of rows (W,).

    Running statistics are updated in place, the variance as the unbiased one.
    """
    weights = counts.to(mean.dtype).unsqueeze(1)
    total = weights.sum()
    whole_mean = (weights * mean).sum(0) / total
    squares = (weights * (invstd.pow(-2) - eps + (mean - whole_mean).square())).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole_mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return whole_mean, torch.rsqrt(squares / total + eps)


def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """Rows normalised with the statistics given, in the type of `input`."""
    out = (_wide(input) - _per_channel(mean, input)) * _per_channel(invstd, input)
    if weight is not None:
        out = out * _per_channel(weight, input)
    if bias is not None:
        out = out + _per_channel(bias, input)
    return out.to(input.dtype)


def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """This rank's sums of the gradient and of its product with the centred input, and the gradients of weight and bias.

    What is not asked for is empty.
    """
    grad = _wide(grad_out)
    sum_dy = _sums(grad)
    sum_dy_xmu = _sums(grad * (_wide(input) - _per_channel(mean, input)))
    kind = sum_dy.dtype if weight is None else weight.dtype
    nothing = sum_dy.new_empty(0)
    return (
        sum_dy if input_g else nothing,
        sum_dy_xmu if input_g else nothing,
        (sum_dy_xmu * invstd).to(kind) if weight_g else nothing,
        sum_dy.to(kind) if bias_g else nothing,
    )


def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Gradient of the input, from sums over all ranks and the ranks' numbers of rows `count`."""
    total = count.sum()
    centred = _wide(input) - _per_channel(mean, input)
    slope = _per_channel(invstd.square() * sum_dy_xmu / total, input)
    scale = invstd if weight is None else invstd * weight
    grad = _wide(grad_out) - _per_channel(sum_dy / total, input) - centred * slope
    return (grad * _per_channel(scale, input)).to(grad_out.dtype)


_OPERATORS = (
    batch_norm_stats,
    batch_norm_gather_stats_with_counts,
    batch_norm_elemt,
    batch_norm_backward_reduce,
    batch_norm_backward_elemt,
)
_library: torch.library.Library | None = None  # unregisters when it dies


def register() -> None:
    """Makes the operators of this file the npu kernels of ATen's. Called once, when torch_cann is imported."""
    global _library
    _library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for operator in _OPERATORS:
        _library.impl(operator.__name__, operator)
