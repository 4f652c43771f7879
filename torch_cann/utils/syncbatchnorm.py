"""Batch normalisation over the batches of all ranks."""

from typing import Any

import torch
import torch.distributed as dist

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["SyncBatchNorm"]


def _sum_over_channels(t: torch.Tensor) -> torch.Tensor:
    """(N, C, ...) -> (C)"""
    return t.sum([d for d in range(t.dim()) if d != 1])


class SyncBatchNorm(torch.autograd.Function):
    """apply(input, weight, bias, running_mean, running_var, eps, momentum, process_group, world_size).

    ``input`` is (N, C, ...), N may differ between ranks. Statistics are taken in float32 over all ranks of the group;
    the running ones are updated in place. Backward sums over the group too: every rank must call it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        eps: float,
        momentum: float,
        process_group: Any,
        world_size: int,
    ) -> torch.Tensor:
        x, channels = input.float(), input.shape[1]
        shape = [1, channels] + [1] * (input.dim() - 2)
        numbers = x.new_full((1,), x.numel() // channels)
        sums = torch.cat((_sum_over_channels(x), numbers))
        dist.all_reduce(sums, group=process_group)
        count = sums[-1]
        if count < 2:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {input.size()}"
                + pta_error(ErrCode.VALUE)
            )
        mean = sums[:-1] / count
        squares = _sum_over_channels((x - mean.view(shape)).square())
        dist.all_reduce(squares, group=process_group)
        variance = squares / count
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((squares / (count - 1)).to(running_var.dtype), momentum)
        scale = torch.rsqrt(variance + eps)
        normalized = (x - mean.view(shape)) * scale.view(shape)
        ctx.save_for_backward(normalized, weight, scale, count)
        ctx.process_group, ctx.shape, ctx.has_bias = process_group, shape, bias is not None
        out = normalized if weight is None else normalized * weight.float().view(shape)
        return (out if bias is None else out + bias.float().view(shape)).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        normalized, weight, scale, count = ctx.saved_tensors
        grad, shape = grad_output.float(), ctx.shape
        sum_grad, sum_product = _sum_over_channels(grad), _sum_over_channels(grad * normalized)
        both = torch.stack((sum_grad, sum_product))
        dist.all_reduce(both, group=ctx.process_group)
        mean_grad, mean_product = (both / count).unbind()
        grad_input = grad - mean_grad.view(shape) - normalized * mean_product.view(shape)
        grad_input = grad_input * (scale if weight is None else scale * weight.float()).view(shape)
        grad_weight = None if weight is None else sum_product.to(weight.dtype)
        grad_bias = sum_grad.to(grad_output.dtype if weight is None else weight.dtype) if ctx.has_bias else None
        return grad_input.to(grad_output.dtype), grad_weight, grad_bias, None, None, None, None, None, None
