"""The fused kernels of CANN that the reference program calls: shapes only, for a dry run; the cost model knows the names.

Saved tensors and results are those of torch_npu's operators of the same names, so that activations in HBM are right.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_cann import _C

_LIBRARY = torch.library.Library("npu_plan", "DEF")

_SCHEMAS = {
    "npu_rms_norm": "(Tensor x, Tensor weight) -> (Tensor, Tensor)",
    "npu_rms_norm_backward": "(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)",
    "composed_rms_norm": "(Tensor x, Tensor weight) -> (Tensor, Tensor)",
    "composed_rms_norm_backward": "(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)",
    "npu_rotary_mul": "(Tensor x) -> Tensor",
    "composed_rotary_mul": "(Tensor x) -> Tensor",
    "npu_swiglu": "(Tensor x) -> Tensor",
    "npu_swiglu_backward": "(Tensor grad, Tensor x) -> Tensor",
    "npu_fusion_attention": "(Tensor q, Tensor k, Tensor v, int density_ppm) -> (Tensor, Tensor, Tensor)",
    "npu_fusion_attention_grad": "(Tensor q, Tensor k, Tensor v, Tensor grad, Tensor max, Tensor sum, Tensor out, "
    "int density_ppm) -> (Tensor, Tensor, Tensor)",
    "npu_all_gather_base_mm": "(Tensor x, Tensor w, int world_size) -> Tensor",
    "npu_mm_reduce_scatter_base": "(Tensor x, Tensor w, int world_size) -> Tensor",
    "npu_dropout_add": "(Tensor x, Tensor residual) -> (Tensor, Tensor)",
    "npu_dropout_backward": "(Tensor grad, Tensor mask) -> Tensor",
    "npu_apply_adam_w": "(Tensor(a!) master, Tensor(b!) first, Tensor(c!) second, Tensor grad) -> ()",
    "grouped_matmul": "(Tensor x, Tensor w) -> Tensor",
    "grouped_matmul_weight_grad": "(Tensor x, Tensor grad, int experts) -> Tensor",
}


def _norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float)


def _norm_backward(grad: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _attention(q: Tensor, k: Tensor, v: Tensor, density_ppm: int) -> tuple[Tensor, Tensor, Tensor]:
    statistics = (*q.shape[:-1], 8)  # softmax's maximum and sum, eight floats a row
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(statistics, dtype=torch.float), q.new_empty(statistics, dtype=torch.float)


def _attention_grad(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


_META = {
    "npu_rms_norm": _norm,
    "npu_rms_norm_backward": _norm_backward,
    "composed_rms_norm": _norm,
    "composed_rms_norm_backward": _norm_backward,
    "npu_rotary_mul": torch.empty_like,
    "composed_rotary_mul": torch.empty_like,
    "npu_swiglu": lambda x: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)),
    "npu_swiglu_backward": lambda grad, x: torch.empty_like(x),
    "npu_fusion_attention": _attention,
    "npu_fusion_attention_grad": _attention_grad,
    "npu_all_gather_base_mm": lambda x, w, world_size: x.new_empty((x.shape[0] * world_size, w.shape[1])),
    "npu_mm_reduce_scatter_base": lambda x, w, world_size: x.new_empty((x.shape[0] // world_size, w.shape[1])),
    "npu_dropout_add": lambda x, residual: (torch.empty_like(x), x.new_empty(x.shape, dtype=torch.bool)),
    "npu_dropout_backward": lambda grad, mask: torch.empty_like(grad),
    "npu_apply_adam_w": lambda master, first, second, grad: None,
    "grouped_matmul": lambda x, w: x.new_empty((x.shape[0], w.shape[2])),
    "grouped_matmul_weight_grad": lambda x, grad, experts: x.new_empty((experts, x.shape[1], grad.shape[1])),
}

for _name, _schema in _SCHEMAS.items():
    _LIBRARY.define(_name + _schema)
    _LIBRARY.impl(_name, _META[_name], "Meta")

ops = torch.ops.npu_plan


class Group:
    """A communicator of the reference program: the ranks' collectives on the device's clock, without torch.distributed."""

    def __init__(self, name: str, ranks: list[int], rank: int = 0) -> None:
        self.size = len(ranks)
        self._group = None
        if self.size > 1:
            self._group = _C._distributed_c10d.DryProcessGroup(ranks.index(rank), self.size, name, ranks)

    def all_gather(self, x: Tensor) -> tuple[Tensor, Any]:
        """(x of all ranks along dimension 0, work to wait for)"""
        out = x.new_empty((x.shape[0] * self.size, *x.shape[1:]))
        return out, self.all_gather_into(out, x)

    def all_gather_into(self, out: Tensor, x: Tensor) -> Any:
        return self._group._allgather_base(out, x)

    def reduce_scatter(self, x: Tensor) -> tuple[Tensor, Any]:
        """(this rank's part of the sum along dimension 0, work to wait for)"""
        out = x.new_empty((x.shape[0] // self.size, *x.shape[1:]))
        return out, self.reduce_scatter_into(out, x)

    def reduce_scatter_into(self, out: Tensor, x: Tensor) -> Any:
        return self._group._reduce_scatter_base(out, x)

    def all_reduce(self, x: Tensor) -> Any:
        return self._group.allreduce([x])

    def all_to_all(self, x: Tensor) -> tuple[Tensor, Any]:
        out = torch.empty_like(x)
        return out, self._group.alltoall_base(out, x, [], [])


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, fused: bool) -> Tensor:
        y, rstd = (ops.npu_rms_norm if fused else ops.composed_rms_norm)(x, weight)
        ctx.save_for_backward(x, weight, rstd)
        ctx.fused = fused
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        backward = ops.npu_rms_norm_backward if ctx.fused else ops.composed_rms_norm_backward
        gx, gw = backward(grad.contiguous(), *ctx.saved_tensors)
        return gx, gw, None


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fused: bool) -> Tensor:
        ctx.op = ops.npu_rotary_mul if fused else ops.composed_rotary_mul
        return ctx.op(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.op(grad), None


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return ops.npu_swiglu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ops.npu_swiglu_backward(grad.contiguous(), *ctx.saved_tensors)


class DropoutAdd(torch.autograd.Function):
    """residual + dropout(x) in one kernel; keeps a mask of a byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor) -> Tensor:
        y, mask = ops.npu_dropout_add(x, residual)
        ctx.save_for_backward(mask)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return ops.npu_dropout_backward(grad, *ctx.saved_tensors), grad


class Attention(torch.autograd.Function):
    """q [batch, heads, tokens, dim], k and v [batch, kv heads, keys, dim] -> [batch, heads, tokens, dim]; ``held``: the result
    is there already, copied from the host while other operators ran."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, density: float, held: bool) -> Tensor:
        ctx.density = round(density * 1e6)
        kernel = _attention if held else ops.npu_fusion_attention
        out, largest, total = kernel(q, k, v, ctx.density)
        ctx.save_for_backward(q, k, v, largest, total, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, largest, total, out = ctx.saved_tensors
        return *ops.npu_fusion_attention_grad(q, k, v, grad.contiguous(), largest, total, out, ctx.density), None, None
