"""A transformer layer, and the two ends of the model: embedding, head and loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torch_cann.plan.device_ops import DropoutAdd, Group, Norm
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.attention import SelfAttention
from torch_cann.plan.reference.experts import Experts
from torch_cann.plan.reference.feedforward import Feedforward
from torch_cann.plan.reference.weights import Column, Groups, Weight


class Layer(nn.Module):
    """Decoder layer ``index`` of the model: x [tokens / tp, hidden] -> the same. Backward computes it again if so said."""

    def __init__(self, model: Model, layout: Layout, groups: Groups, index: int, recomputed: bool) -> None:
        super().__init__()
        self.layout, self.recomputed = layout, recomputed
        windowed = (index * model.window_share) % 1 + model.window_share >= 1
        norms = 2 + model.post_norms
        self.norms = nn.ModuleList(Weight(model.hidden, layout=layout) for _ in range(norms))
        self.attention = SelfAttention(model, layout, groups, windowed, layout.swap_attention and recomputed)
        routed = model.experts and index >= model.dense_layers
        self.mlp = Experts(model, layout, groups) if routed else Feedforward(model, layout, groups, model.ffn)
        self.fused_norm = layout.fused_norm or not model.gated

    def norm(self, x: Tensor, which: int) -> Tensor:
        return Norm.apply(x, self.norms[which].value, self.fused_norm)

    def forward(self, x: Tensor) -> Tensor:
        if not self.recomputed or not torch.is_grad_enabled():  # without a backward nothing is computed again
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=True, preserve_rng_state=False)

    def body(self, x: Tensor) -> Tensor:
        y = self.attention(self.norm(x, 0))
        if len(self.norms) > 2:
            y = self.norm(y, 2)
        x = self.residual(x, y)
        y = self.mlp(self.norm(x, 1))
        if len(self.norms) > 3:
            y = self.norm(y, 3)
        return self.residual(x, y)

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        return DropoutAdd.apply(y, x) if self.layout.dropout else x + y


class Head(nn.Module):
    """Final norm, logits over this rank's share of the vocabulary, and their cross entropy in fp32."""

    def __init__(self, model: Model, layout: Layout, groups: Groups) -> None:
        super().__init__()
        self.groups = groups
        self.norm = Weight(model.hidden, layout=layout)
        self.fused_norm = layout.fused_norm or not model.gated
        self.weight = Weight(-(-model.vocab // layout.tp), model.hidden, layout=layout)
        self.softcap = model.logit_softcap

    def forward(self, x: Tensor) -> Tensor:
        x = Norm.apply(x, self.norm.value, self.fused_norm)
        logits = Column.apply(x, self.weight.value, self.weight, self.groups.tp)
        if self.softcap:
            logits = torch.tanh(logits / 30.0) * 30.0
        return CrossEntropy.apply(logits, self.groups.tp)


class CrossEntropy(torch.autograd.Function):
    """Vocabulary-parallel, as in Megatron: fp32 logits, three small reductions, the softmax kept for backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tp: Group) -> Tensor:
        ctx.dtype = logits.dtype
        wide = logits.float()
        largest = wide.amax(dim=-1)
        if tp.size > 1:
            tp.all_reduce(largest).wait()
        wide.sub_(largest.unsqueeze(-1))
        total = torch.exp(wide, out=wide).sum(dim=-1)
        if tp.size > 1:
            tp.all_reduce(total).wait()
            tp.all_reduce(largest).wait()
        wide.div_(total.unsqueeze(-1))
        ctx.save_for_backward(wide)
        return total.log().mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (softmax,) = ctx.saved_tensors
        return softmax.mul_(grad).to(ctx.dtype), None


class Embedding(nn.Module):
    def __init__(self, model: Model, layout: Layout, groups: Groups) -> None:
        super().__init__()
        self.layout, self.groups = layout, groups
        self.weight = Weight(-(-model.vocab // layout.tp), model.hidden, layout=layout)

    def forward(self, tokens: Tensor) -> Tensor:
        return Lookup.apply(self.weight.value, tokens, self.weight, self.groups.tp)


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, tokens: Tensor, weight: Weight, tp: Group) -> Tensor:
        ctx.weight, ctx.tp, ctx.tokens = weight, tp, tokens
        y = nn.functional.embedding(tokens, value)
        if tp.size > 1:
            y, work = tp.reduce_scatter(y) if weight.layout.sequence_parallel else (y, tp.all_reduce(y))
            work.wait()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        if ctx.tp.size > 1 and ctx.weight.layout.sequence_parallel:
            grad, work = ctx.tp.all_gather(grad.contiguous())
            work.wait()
        if ctx.weight.main_grad.shape == ctx.weight.value.shape:
            ctx.weight.main_grad.index_add_(0, ctx.tokens, grad.to(ctx.weight.main_grad.dtype))
        ctx.weight.finish()
        return None, None, None, None
