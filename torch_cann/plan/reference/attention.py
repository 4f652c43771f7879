"""Self-attention: projections, the fused kernel or its definition, and context parallelism."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torch_cann.plan.device_ops import Attention, Group, Norm, Rotary, ops
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.weights import AddBias, Column, Groups, Row, Weight


class SelfAttention(nn.Module):
    """x [tokens / tp, hidden] -> the same; ``windowed`` layers look back no further than the model's window. ``swapped``: its
    layer is computed again in backward, when the fused kernel's results come back from host memory."""

    def __init__(self, model: Model, layout: Layout, groups: Groups, windowed: bool, swapped: bool) -> None:
        super().__init__()
        self.swapped = swapped
        self.model, self.layout, self.groups = model, layout, groups
        self.heads = model.heads // layout.tp
        self.kv = max(1, model.kv // layout.tp)
        head = model.head
        if model.latent:
            self.down_kv = Weight(model.latent_rank + model.rope_dim, model.hidden, layout=layout)
            self.up_kv = Weight(self.heads * 2 * head, model.latent_rank, layout=layout)
            self.norm_kv = Weight(model.latent_rank, layout=layout)
            self.query = Weight(self.heads * (head + model.rope_dim), model.query_rank or model.hidden, layout=layout)
            if model.query_rank:
                self.down_query = Weight(model.query_rank, model.hidden, layout=layout)
                self.norm_query = Weight(model.query_rank, layout=layout)
        else:
            self.qkv = Weight((self.heads + 2 * self.kv) * head, model.hidden, layout=layout)
            self.qkv_bias = Weight((self.heads + 2 * self.kv) * head, layout=layout) if model.qkv_bias else None
        self.out = Weight(model.hidden, self.heads * head, layout=layout)
        window = model.window if windowed else 0
        sequence = layout.sequence
        self.density = window / sequence * (1 - window / (2 * sequence)) if 0 < window < sequence else 0.5

    def forward(self, x: Tensor) -> Tensor:
        tp = self.groups.tp
        q, k, v = self.latent_parts(x) if self.model.latent else self.parts(x)
        tokens, batch = q.shape[:2]
        if self.layout.rotary and not self.model.latent:
            q, k = Rotary.apply(q, self.layout.fused_rotary), Rotary.apply(k, self.layout.fused_rotary)
        y = self.attend(q, k, v)[..., : self.model.head]
        return Row.apply(y.reshape(tokens * batch, -1), self.out.value, self.out, tp)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [tokens, batch, heads, head] as Megatron keeps them; splitting copies each once."""
        fused = Column.apply(x, self.qkv.value, self.qkv, self.groups.tp)
        if self.qkv_bias is not None:
            fused = AddBias.apply(fused, self.qkv_bias.value, self.qkv_bias)
        parts = fused.view(-1, self.layout.micro_batch, self.heads + 2 * self.kv, self.model.head)
        q, k, v = parts.split([self.heads, self.kv, self.kv], dim=2)
        return q.contiguous(), k.contiguous(), v.contiguous()

    def latent_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same by multi-head latent attention: keys and values from a narrow vector, a shared rotary part.

        Values are padded to the keys' width, which the fused kernel wants equal.
        """
        tp, head, rope = self.groups.tp, self.model.head, self.model.rope_dim
        batch = self.layout.micro_batch
        alone = Group("alone", [0])
        if self.model.query_rank:
            q = Column.apply(x, self.down_query.value, self.down_query, alone)
            q = Norm.apply(q, self.norm_query.value, self.layout.fused_norm)
        else:
            q = x
        q = Column.apply(q, self.query.value, self.query, tp).view(-1, batch, self.heads, head + rope)
        narrow, shared = Column.apply(x, self.down_kv.value, self.down_kv, tp).split(
            [self.model.latent_rank, rope], dim=-1
        )
        narrow = Norm.apply(narrow.contiguous(), self.norm_kv.value, self.layout.fused_norm)
        wide = Column.apply(narrow, self.up_kv.value, self.up_kv, alone)
        k, v = wide.view(-1, batch, self.heads, 2 * head).split(head, dim=-1)
        q, rotary = q.split([head, rope], dim=-1)
        fused = self.layout.fused_rotary
        q = torch.cat([q, Rotary.apply(rotary.contiguous(), fused)], dim=-1)
        shared = Rotary.apply(shared.reshape(-1, batch, 1, rope), fused)
        k = torch.cat([k, shared.expand(-1, -1, self.heads, -1)], dim=-1)
        return q, k, nn.functional.pad(v, (0, rope))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[tokens, batch, heads, head] each -> the same as q"""
        if self.layout.cp > 1:
            cp = self.groups.cp
            return (
                UlyssesAttention.apply(q, k, v, self.density, cp)
                if self.layout.ulysses
                else RingAttention.apply(q, k, v, self.density, cp)
            )
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        # A checkpointed layer's first pass is without gradients; its second has them.
        held = self.swapped and torch.is_grad_enabled()
        y = Attention.apply(q, k, v, self.density, held) if self.layout.flash else self.scores(q, k, v)
        return y.permute(2, 0, 1, 3)

    def scores(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention by its definition, over the whole square."""

        def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if k.shape[1] != q.shape[1]:
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            batch, heads, tokens, head = q.shape
            q, k, v = (x.reshape(batch * heads, -1, head) for x in (q, k, v))
            scores = torch.bmm(q, k.transpose(1, 2))
            if not self.layout.fused_softmax:
                mask = torch.empty((1, tokens, tokens), dtype=torch.bool, device="npu")
                scores = scores.mul_(head**-0.5).masked_fill(mask, -1e4)
            weights = torch.softmax(scores, dim=-1)
            if self.layout.dropout:
                weights = torch.dropout(weights, 0.1, True)
            return torch.bmm(weights, v).view(batch, heads, tokens, head)

        if self.layout.recompute == "selective":
            return checkpoint(compute, q, k, v, use_reentrant=False, preserve_rng_state=False)
        return compute(q, k, v)


class UlyssesAttention(torch.autograd.Function):
    """Context parallelism by all_to_all: every rank attends over the whole sequence with its share of the heads."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, density: float, cp: Group) -> Tensor:
        ctx.density, ctx.cp = density, cp
        q2, k2, v2 = (_heads_for_sequence(x, cp) for x in (q, k, v))
        out, largest, total = ops.npu_fusion_attention(q2, k2, v2, round(density * 1e6))
        ctx.save_for_backward(q2, k2, v2, largest, total, out)
        ctx.shapes = q.shape, k.shape, v.shape
        return _sequence_for_heads(out, q.shape, cp)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, largest, total, out = ctx.saved_tensors
        grad = _heads_for_sequence(grad, ctx.cp)
        grads = ops.npu_fusion_attention_grad(q, k, v, grad, largest, total, out, round(ctx.density * 1e6))
        return *(_sequence_for_heads(g, s, ctx.cp) for g, s in zip(grads, ctx.shapes, strict=True)), None, None


def _heads_for_sequence(x: Tensor, cp: Group) -> Tensor:
    tokens, batch, heads, head = x.shape
    if heads % cp.size:
        x = x.repeat(1, 1, cp.size // heads, 1)
        heads = x.shape[2]
    parts = x.reshape(tokens, batch, cp.size, heads // cp.size, head).permute(2, 0, 1, 3, 4).contiguous()
    out, work = cp.all_to_all(parts)
    work.wait()
    return out.view(tokens * cp.size, batch, heads // cp.size, head).permute(1, 2, 0, 3)


def _sequence_for_heads(x: Tensor, shape: torch.Size, cp: Group) -> Tensor:
    parts = x.permute(2, 0, 1, 3).contiguous()
    out, work = cp.all_to_all(parts)
    work.wait()
    return out.reshape(-1)[: shape.numel()].view(shape).clone()


class RingAttention(torch.autograd.Function):
    """Context parallelism by passing keys and values round; each step's transfer runs beside its attention."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, density: float, cp: Group) -> Tensor:
        ctx.density, ctx.cp = density, cp
        q4, k4, v4 = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        out = largest = total = None
        for step in range(cp.size):
            work = _pass_on(k, cp, 2) if step + 1 < cp.size else None
            part, largest, total = ops.npu_fusion_attention(q4, k4, v4, round(density * 1e6))
            # Each block rescales the running result by the new maximum, in fp32.
            out = part.float() if out is None else out.mul_(largest[..., :1]).add_(part)
            if work is not None:
                work.wait()
        out = out.to(q.dtype)
        ctx.save_for_backward(q4, k4, v4, largest, total, out)
        return out.permute(2, 0, 1, 3)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, largest, total, out = ctx.saved_tensors
        grad = grad.permute(1, 2, 0, 3).contiguous()
        sums: list[Tensor] | None = None
        for step in range(ctx.cp.size):
            # Keys and values travel with their gradients.
            work = _pass_on(k, ctx.cp, 4) if step + 1 < ctx.cp.size else None
            parts = ops.npu_fusion_attention_grad(q, k, v, grad, largest, total, out, round(ctx.density * 1e6))
            sums = list(parts) if sums is None else [s.add_(p) for s, p in zip(sums, parts, strict=True)]
            if work is not None:
                work.wait()
        return *(s.permute(2, 0, 1, 3) for s in sums), None, None


def _pass_on(like: Tensor, cp: Group, tensors: int) -> Any:
    packed = like.new_empty((tensors, *like.shape))
    return cp._group.send([packed], (cp._group.rank() + 1) % cp.size, 0)
