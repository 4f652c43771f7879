"""Weights with their gradient buffers, the tensor-parallel products over them, and the communicators of a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torch_cann.plan.device_ops import Group, ops
from torch_cann.plan.layout import Layout


class Groups:
    """Communicators of global rank ``(tp, cp, dp, pp) = (0, 0, 0, stage)``; ranks count tp first, then cp, dp, pp."""

    def __init__(self, layout: Layout, stage: int) -> None:
        tp, cp, dp, pp = layout.tp, layout.cp, layout.dp, layout.pp
        first = stage * tp * cp * dp
        self.rank = first
        self.tp = Group("tp", [first + i for i in range(tp)], first)
        self.cp = Group("cp", [first + i * tp for i in range(cp)], first)
        self.data = Group("data", [first + i * tp for i in range(cp * dp)], first)
        self.ep = Group("ep", [first + i * tp for i in range(layout.ep)], first)
        self.tp_and_ep = Group("tp_and_ep", [first + i for i in range(tp * layout.ep)], first)
        self.expert_data = Group(
            "expert_data", [first + i * tp * layout.ep for i in range(cp * dp // layout.ep)], first
        )
        self.embedding = Group(
            "embedding", sorted({0, (pp - 1) * tp * cp * dp}) if stage in (0, pp - 1) else [first], first
        )
        self.next = first + tp * cp * dp


class Weight(nn.Module):
    """A weight with its gradient buffer, fp32 or as the layout says, which products add to."""

    def __init__(self, *shape: int, layout: Layout, expert: bool = False) -> None:
        super().__init__()
        dtype = torch.float16 if layout.fp16 else torch.bfloat16
        self.value = nn.Parameter(torch.empty(shape, dtype=dtype, device="npu"))
        shards = layout.dp * layout.cp if layout.zero >= 2 else 1
        grad_shape = shape if shards == 1 else (-(-self.value.numel() // shards),)
        wide = not layout.fp16 or layout.fp32_gradients
        self.main_grad = torch.empty(grad_shape, dtype=torch.float if wide else dtype, device="npu")
        self.layout = layout
        self.expert = expert
        # Called with this weight as soon as backward has made its gradient, while data-parallel reduction overlaps.
        self.when_ready: Callable[[Weight], None] | None = None

    def finish(self) -> None:
        """Its gradient of this backward pass is complete."""
        if self.when_ready is not None:
            self.when_ready(self)

    def accumulate(self, x: Tensor, grad: Tensor) -> None:
        """main_grad += grad^T x, for x [tokens, in], grad [tokens, out]"""
        self.add(grad.t().mm(x))

    def add(self, product: Tensor) -> None:
        """main_grad += product, which has the weight's shape."""
        if self.main_grad.shape != product.shape:  # ZeRO 2
            self.main_grad.add_(product.view(-1)[: self.main_grad.numel()])
        elif not self.layout.fused_gradients:
            self.main_grad.add_(product)


class Column(torch.autograd.Function):
    """x [tokens / tp, in] -> [tokens, out / tp]; without sequence parallelism x is whole and backward all-reduces."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, weight: Weight, tp: Group) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.tp = weight, tp
        gathers = tp.size > 1 and weight.layout.sequence_parallel
        if gathers and weight.layout.fused_collectives:
            return ops.npu_all_gather_base_mm(x, value.t(), tp.size)
        if gathers:
            x, work = tp.all_gather(x)
            work.wait()
        return x.mm(value.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        weight, tp = ctx.weight, ctx.tp
        grad = grad.contiguous()
        sequence = weight.layout.sequence_parallel
        work = None
        if tp.size > 1 and sequence:
            x, work = tp.all_gather(x)
        gx = grad.mm(weight.value)
        if work is not None:
            work.wait()
        if tp.size > 1:
            gx, work = tp.reduce_scatter(gx) if sequence else (gx, tp.all_reduce(gx))
        weight.accumulate(x, grad)
        if work is not None:
            work.wait()
        weight.finish()
        return gx, None, None, None


class Row(torch.autograd.Function):
    """x [tokens, in / tp] -> [tokens / tp, out]; without sequence parallelism the result is all-reduced."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, weight: Weight, tp: Group) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.tp = weight, tp
        layout = weight.layout
        if tp.size > 1 and layout.sequence_parallel and layout.fused_collectives:
            return ops.npu_mm_reduce_scatter_base(x, value.t(), tp.size)
        y = x.mm(value.t())
        if tp.size > 1:
            y, work = tp.reduce_scatter(y) if layout.sequence_parallel else (y, tp.all_reduce(y))
            work.wait()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        weight, tp = ctx.weight, ctx.tp
        grad = grad.contiguous()
        whole = grad
        fused = False
        if tp.size > 1 and weight.layout.sequence_parallel:
            fused = weight.layout.fused_collectives
            if fused:
                # The product gathers what the weight's gradient needs as well.
                whole = grad.new_empty((grad.shape[0] * tp.size, grad.shape[1]))
            else:
                whole, work = tp.all_gather(grad)
                work.wait()
        gx = ops.npu_all_gather_base_mm(grad, weight.value, tp.size) if fused else whole.mm(weight.value)
        weight.accumulate(x, whole)
        weight.finish()
        return gx, None, None, None


class AddBias(torch.autograd.Function):
    """x [tokens, out] + bias [out], in a kernel of its own, as after a product that is fused with a collective."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, weight: Weight) -> Tensor:
        ctx.weight = weight
        return x + value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.weight.add(grad.sum(dim=0))
        ctx.weight.finish()
        return grad, None, None
