"""A mixture of experts: router, the two ways Megatron has to bring tokens to their experts, and the experts.

The operators are those of Megatron-LM's router and dispatchers as MindSpeed runs them: sorts of expert numbers, gathers of
rows, counts that the host reads before it can go on. With a few thousand tokens on a card their launches, not their
bytes, are what a layer costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torch_cann.plan.device_ops import Group, ops
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.feedforward import Feedforward, activate
from torch_cann.plan.reference.weights import Column, Groups, Row, Weight

# Rows that the busiest rank's experts get over the mean, where experts are spread over ranks (estimate: an auxiliary loss
# keeps the experts of a rank together within about this of even). A rank that holds all experts has all rows.
IMBALANCE = 1.15


class Experts(nn.Module):
    """x [tokens / tp, hidden] -> the same."""

    def __init__(self, model: Model, layout: Layout, groups: Groups) -> None:
        super().__init__()
        self.router = Router(model, layout)
        dispatchers = {"alltoall": AllToAllDispatcher, "allgather": AllGatherDispatcher}
        self.dispatcher = dispatchers[layout.dispatcher](model, groups)
        local = model.experts // layout.ep
        self.experts = (GroupedExperts if layout.grouped_experts else SequentialExperts)(model, layout, local)
        self.shared = Feedforward(model, layout, groups, model.shared_ffn) if model.shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        shares, numbers = self.router(x)
        rows = self.dispatcher.to_experts(x, shares, numbers)
        y = self.dispatcher.from_experts(self.experts(rows))
        return y if self.shared is None else y + self.shared(x)


class Router(nn.Module):
    """x [tokens, hidden] -> shares and expert numbers, [tokens, top_k] each; adds the loss that balances the experts."""

    def __init__(self, model: Model, layout: Layout) -> None:
        super().__init__()
        self.experts, self.top_k = model.experts, model.top_k
        self.weight = Weight(model.experts, model.hidden, layout=layout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = Column.apply(x, self.weight.value, self.weight, Group("alone", [0]))
        best, numbers = logits.topk(self.top_k, dim=-1)
        shares = torch.softmax(best.float(), dim=-1)
        counts = torch.histc(numbers.float(), bins=self.experts, min=0, max=self.experts)
        balance = (torch.softmax(logits.float(), dim=-1).sum(dim=0) * counts).sum() * (1 / x.shape[0])
        # The loss reaches the logits by way of the shares, whose gradient it rides on.
        return shares + 0 * balance, numbers


# ---- bringing tokens to experts --------------------------------------------------------------------------------------


def _read_by_host(counts: Tensor) -> None:
    """The host needs these numbers before it can launch what follows, and so waits for the device."""
    torch.npu.synchronize()


def _busiest(rows: int, ranks: int) -> int:
    """Rows of the busiest rank, a multiple of ``ranks``."""
    return -(-round(rows * IMBALANCE) // ranks) * ranks


class AllToAllDispatcher:
    """Rows sorted by expert are exchanged between the ranks that hold the experts; tensor-parallel ranks carry a slice
    of the width each (Megatron's legacy all-to-all, MindSpeed's ``alltoall_seq``)."""

    def __init__(self, model: Model, groups: Groups) -> None:
        self.model, self.tp, self.ep = model, groups.tp, groups.ep

    def to_experts(self, x: Tensor, shares: Tensor, numbers: Tensor) -> Tensor:
        self.shares = shares
        self._count(numbers)
        if self.tp.size > 1:
            # Each rank now has all tokens of its tensor-parallel group, a slice of the width of each.
            x = Exchange.apply(_slices(x, self.tp.size), self.tp).flatten(0, 1)
            self.shares = Gather.apply(shares, self.tp)
            numbers, work = self.tp.all_gather(numbers)
            work.wait()
        self.order = torch.sort(numbers.flatten().float(), stable=True)[1]
        rows = x.index_select(0, self.order // self.model.top_k)
        self.sent = rows.shape[0]
        if self.ep.size > 1:
            rows = Exchange.apply(Resize.apply(rows, _busiest(self.sent, self.ep.size)), self.ep)
        if self.model.experts > self.ep.size:  # from the order of ranks to that of experts
            self.by_expert = torch.sort(rows.new_empty(rows.shape[0], dtype=torch.float), stable=True)[1]
            rows = rows.index_select(0, self.by_expert)
        if self.tp.size > 1:
            rows = _unslice(Gather.apply(rows, self.tp), self.tp.size)
        return rows

    def _count(self, numbers: Tensor) -> None:
        """How many rows go from each rank to each expert: read twice by the host, for both sides of the exchange."""
        counts = torch.histc(numbers.float(), bins=self.model.experts, min=0, max=self.model.experts)
        if self.ep.size > 1:
            _read_by_host(counts.view(self.ep.size, -1).sum(dim=1))
            everywhere, work = self.ep.all_gather(counts)
            work.wait()
            _read_by_host(everywhere.view(self.ep.size, -1).sum(dim=0))
        else:
            _read_by_host(counts)

    def from_experts(self, rows: Tensor) -> Tensor:
        if self.tp.size > 1:
            rows = Scatter.apply(_slices(rows, self.tp.size).flatten(0, 1), self.tp)
        if self.model.experts > self.ep.size:
            rows = rows.index_select(0, torch.argsort(self.by_expert.float()).int())
        if self.ep.size > 1:
            rows = Resize.apply(Exchange.apply(rows, self.ep), self.sent)
        rows = rows.index_select(0, torch.argsort(self.order.float()).int())
        rows = rows.view(-1, self.model.top_k, rows.shape[-1]) * self.shares.unsqueeze(-1).to(rows.dtype)
        y = rows.sum(dim=1)
        if self.tp.size > 1:
            y = Exchange.apply(y.view(self.tp.size, -1, y.shape[-1]), self.tp)
            y = _unslice(y.flatten(0, 1), self.tp.size)
        return y


def _slices(x: Tensor, count: int) -> Tensor:
    """[rows, width] -> [count, rows, width / count], copied"""
    return x.view(x.shape[0], count, -1).transpose(0, 1).contiguous()


def _unslice(x: Tensor, count: int) -> Tensor:
    """[count * rows, width] -> [rows, count * width], copied"""
    return x.view(count, -1, x.shape[-1]).transpose(0, 1).reshape(-1, count * x.shape[-1])


class AllGatherDispatcher:
    """Every rank gathers all tokens of its expert group, picks those of its experts, and the sums are scattered back.

    Rows are picked by gather and put back by scatter with an index as wide as the rows, eight bytes an element.
    """

    def __init__(self, model: Model, groups: Groups) -> None:
        self.model, self.everyone, self.local = model, groups.tp_and_ep, model.experts // groups.ep.size
        self.spread = groups.ep.size > 1

    def to_experts(self, x: Tensor, shares: Tensor, numbers: Tensor) -> Tensor:
        self.scattered = self.everyone.size > 1
        if self.scattered:
            numbers, work = self.everyone.all_gather(numbers)
            work.wait()
            x, shares = Gather.apply(x, self.everyone), Gather.apply(shares, self.everyone)
        self.tokens = x.shape[0]
        ours = (numbers >= 0) & (numbers < self.local)
        even = numbers.numel() * self.local // self.model.experts
        count = _busiest(even, 1) if self.spread else even
        width = x.shape[1]
        # masked_select and nonzero, of which only the values' bound is known.
        picked = numbers.new_empty(count)
        ours.sum()
        _read_by_host(torch.histc(numbers.float(), bins=self.model.experts, min=0, max=self.model.experts - 1))
        self.shares = Resize.apply(shares.reshape(-1, 1), count)
        self.where = picked.view(-1, 1).expand(-1, width)
        rows = Pick.apply(x, self.where)
        if self.local > 1:
            self.order = torch.argsort(picked.float()).view(-1, 1).expand(-1, width)
            rows = Pick.apply(rows, self.order)
        return rows

    def from_experts(self, rows: Tensor) -> Tensor:
        if self.local > 1:
            rows = torch.zeros_like(rows).scatter(0, self.order, rows)
        rows = rows * self.shares.to(rows.dtype)
        y = rows.new_zeros((self.tokens, rows.shape[1])).scatter_add(0, self.where, rows)
        return Scatter.apply(y, self.everyone) if self.scattered else y


# ---- the experts -----------------------------------------------------------------------------------------------------


def _widths(model: Model, layout: Layout) -> tuple[int, int]:
    """Of an expert's first product and of its second's input, on one tensor-parallel rank."""
    inner = (model.expert_ffn or model.ffn) // layout.tp
    return inner * (2 if model.gated else 1), inner


class GroupedExperts(nn.Module):
    """All local experts in one kernel a product (npu_grouped_matmul); rows are taken to fall on them evenly."""

    def __init__(self, model: Model, layout: Layout, local: int) -> None:
        super().__init__()
        self.gated, self.fused = model.gated, layout.fused_gated
        wide, inner = _widths(model, layout)
        self.up = Weight(local, model.hidden, wide, layout=layout, expert=True)
        self.down = Weight(local, inner, model.hidden, layout=layout, expert=True)

    def forward(self, rows: Tensor) -> Tensor:
        y = activate(Grouped.apply(rows, self.up.value, self.up), self.gated, self.fused)
        return Grouped.apply(y, self.down.value, self.down)


class Grouped(torch.autograd.Function):
    """x [rows, in], weights [experts, in, out] -> [rows, out]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, weight: Weight) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        return ops.grouped_matmul(x, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        weight = ctx.weight
        grad = grad.contiguous()
        gx = ops.grouped_matmul(grad, weight.value.transpose(1, 2))
        weight.add(ops.grouped_matmul_weight_grad(x, grad, weight.value.shape[0]))
        weight.finish()
        return gx, None, None


class SequentialExperts(nn.Module):
    """One expert after another."""

    def __init__(self, model: Model, layout: Layout, local: int) -> None:
        super().__init__()
        self.gated, self.fused = model.gated, layout.fused_gated
        wide, inner = _widths(model, layout)
        self.ups = nn.ModuleList(Weight(wide, model.hidden, layout=layout, expert=True) for _ in range(local))
        self.downs = nn.ModuleList(Weight(model.hidden, inner, layout=layout, expert=True) for _ in range(local))

    def forward(self, rows: Tensor) -> Tensor:
        alone = Group("alone", [0])
        parts = rows.tensor_split(len(self.ups))
        outputs = []
        for part, up, down in zip(parts, self.ups, self.downs, strict=True):
            y = activate(Column.apply(part, up.value, up, alone), self.gated, self.fused)
            outputs.append(Row.apply(y, down.value, down, alone))
        return torch.cat(outputs)


# ---- movements that autograd reverses --------------------------------------------------------------------------------


class Pick(torch.autograd.Function):
    """torch.gather along dimension 0, which keeps the index only, as Megatron's moe_gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.index, ctx.shape = index, x.shape
        return torch.gather(x, 0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_zeros(ctx.shape).scatter_add_(0, ctx.index, grad), None


class Resize(torch.autograd.Function):
    """More or fewer rows, as another rank has them: no work, only sizes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.shape = x.shape
        return x.new_empty((rows, *x.shape[1:]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_empty(ctx.shape), None


def _exchange(x: Tensor, group: Group) -> Tensor:
    out, work = group.all_to_all(x.contiguous())
    work.wait()
    return out


def _gather(x: Tensor, group: Group) -> Tensor:
    out, work = group.all_gather(x.contiguous())
    work.wait()
    return out


def _scatter(x: Tensor, group: Group) -> Tensor:
    out, work = group.reduce_scatter(x.contiguous())
    work.wait()
    return out


def _moved(there: Any, back: Any, name: str, text: str) -> type[torch.autograd.Function]:
    """An autograd function of (x, group) that does ``there`` forward and ``back`` backward."""

    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return there(x, group)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return back(grad, ctx.group), None

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__doc__": text}
    return type(name, (torch.autograd.Function,), members)


Exchange = _moved(_exchange, _exchange, "Exchange", "all_to_all along dimension 0.")
Gather = _moved(_gather, _scatter, "Gather", "all_gather along dimension 0; gradients are summed.")
Scatter = _moved(_scatter, _gather, "Scatter", "reduce_scatter along dimension 0.")
