"""The reference transformer program: what a Megatron-style trainer does on one NPU of one pipeline stage.

It is a program, not formulas: it issues operators and collectives on dry npu tensors, the caching allocator says what
fills HBM, and the device's clock says how long it takes. Weight gradients go to fp32 buffers, column-parallel layers
gather their input again in backward and overlap it, as Megatron does with sequence parallelism.

Activations are [tokens, hidden] with tokens = micro_batch * sequence / cp, over tp again where sequence parallelism is on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torch_cann.plan.device_ops import Attention, DropoutAdd, Gated, Group, Norm, Rotary, ops
from torch_cann.plan.layout import Layout, Model


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
        self.expert_data = Group(
            "expert_data", [first + i * tp * layout.ep for i in range(cp * dp // layout.ep)], first
        )
        self.embedding = Group(
            "embedding", sorted({0, (pp - 1) * tp * cp * dp}) if stage in (0, pp - 1) else [first], first
        )
        self.next = first + tp * cp * dp


class Weight(nn.Module):
    """A weight with its fp32 gradient buffer, which products add to."""

    def __init__(self, *shape: int, layout: Layout, expert: bool = False) -> None:
        super().__init__()
        dtype = torch.float16 if layout.fp16 else torch.bfloat16
        self.value = nn.Parameter(torch.empty(shape, dtype=dtype, device="npu"))
        shards = layout.dp * layout.cp if layout.zero >= 2 else 1
        grad_shape = shape if shards == 1 else (-(-self.value.numel() // shards),)
        self.main_grad = torch.empty(grad_shape, dtype=dtype if layout.fp16 else torch.float, device="npu")
        self.layout = layout
        self.expert = expert

    def accumulate(self, x: Tensor, grad: Tensor) -> None:
        """main_grad += grad^T x, for x [tokens, in], grad [tokens, out]"""
        product = grad.t().mm(x)
        if self.main_grad.shape != product.shape:  # ZeRO 2: each rank keeps the sum of its share only
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
        _reduce_if_last(weight)
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
        _reduce_if_last(weight)
        return gx, None, None, None


def _reduce_if_last(weight: Weight) -> None:
    stage = Stage.current
    if stage is not None and stage.reducing:
        stage.start_reduction(weight)


class SelfAttention(nn.Module):
    def __init__(self, model: Model, layout: Layout, groups: Groups, windowed: bool) -> None:
        super().__init__()
        self.model, self.layout, self.groups = model, layout, groups
        self.heads = model.heads // layout.tp
        self.kv = max(1, model.kv // layout.tp)
        head = model.head
        if model.latent:
            self.down_kv = Weight(model.latent_rank + model.rope_dim, model.hidden, layout=layout)
            self.up_kv = Weight(self.heads * 2 * head, model.latent_rank, layout=layout)
            self.query = Weight(self.heads * (head + model.rope_dim), model.hidden, layout=layout)
        else:
            self.qkv = Weight((self.heads + 2 * self.kv) * head, model.hidden, layout=layout)
        self.out = Weight(model.hidden, self.heads * head, layout=layout)
        window = model.window if windowed else 0
        sequence = layout.sequence
        self.density = window / sequence * (1 - window / (2 * sequence)) if 0 < window < sequence else 0.5

    def forward(self, x: Tensor) -> Tensor:
        tp = self.groups.tp
        q, k, v = self.latent_parts(x) if self.model.latent else self.parts(x)
        tokens, batch = q.shape[:2]
        if self.layout.rotary:
            q, k = Rotary.apply(q, self.layout.fused_rotary), Rotary.apply(k, self.layout.fused_rotary)
        y = self.attend(q, k, v)
        return Row.apply(y.reshape(tokens * batch, -1), self.out.value, self.out, tp)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [tokens, batch, heads, head] as Megatron keeps them; splitting copies each once."""
        fused = Column.apply(x, self.qkv.value, self.qkv, self.groups.tp)
        parts = fused.view(-1, self.layout.micro_batch, self.heads + 2 * self.kv, self.model.head)
        q, k, v = parts.split([self.heads, self.kv, self.kv], dim=2)
        return q.contiguous(), k.contiguous(), v.contiguous()

    def latent_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same by multi-head latent attention: keys and values from a narrow vector, a shared rotary part."""
        tp, head, rope = self.groups.tp, self.model.head, self.model.rope_dim
        batch = self.layout.micro_batch
        q = Column.apply(x, self.query.value, self.query, tp).view(-1, batch, self.heads, head + rope)
        narrow, shared = Column.apply(x, self.down_kv.value, self.down_kv, tp).split(
            [self.model.latent_rank, rope], dim=-1
        )
        wide = Column.apply(narrow.contiguous(), self.up_kv.value, self.up_kv, Group("alone", [0]))
        k, v = wide.view(-1, batch, self.heads, 2 * head).split(head, dim=-1)
        k = torch.cat([k, shared.reshape(-1, batch, 1, rope).expand(-1, -1, self.heads, -1)], dim=-1)
        return q, k, v.contiguous()

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
        y = Attention.apply(q, k, v, self.density) if self.layout.flash else self.scores(q, k, v)
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


class Feedforward(nn.Module):
    def __init__(self, model: Model, layout: Layout, groups: Groups, ffn: int) -> None:
        super().__init__()
        self.gated, self.fused, self.groups = model.gated, layout.fused_gated, groups
        inner = ffn // layout.tp
        self.up = Weight(inner * (2 if model.gated else 1), model.hidden, layout=layout)
        self.down = Weight(model.hidden, inner, layout=layout)

    def forward(self, x: Tensor) -> Tensor:
        y = Column.apply(x, self.up.value, self.up, self.groups.tp)
        if self.up.layout.recompute_activation:
            return checkpoint(self.contract, y, use_reentrant=True, preserve_rng_state=False)
        return self.contract(y)

    def contract(self, y: Tensor) -> Tensor:
        return Row.apply(self.activate(y), self.down.value, self.down, self.groups.tp)

    def activate(self, y: Tensor) -> Tensor:
        if not self.gated:
            return nn.functional.gelu(y)
        if self.fused:
            return Gated.apply(y)
        gate, value = y.chunk(2, dim=-1)
        return nn.functional.silu(gate) * value


class Experts(nn.Module):
    """A mixture of experts: tokens are sorted by expert, exchanged, and each local expert multiplies its share."""

    # Largest expert's tokens over the mean: capacity is never even (estimate).
    IMBALANCE = 1.15

    def __init__(self, model: Model, layout: Layout, groups: Groups) -> None:
        super().__init__()
        self.model, self.layout, self.groups = model, layout, groups
        self.local = model.experts // layout.ep
        ffn = (model.expert_ffn or model.ffn) // layout.tp
        self.router = Weight(model.experts, model.hidden, layout=layout)
        wide = ffn * (2 if model.gated else 1)
        self.ups = nn.ModuleList(Weight(wide, model.hidden, layout=layout, expert=True) for _ in range(self.local))
        self.downs = nn.ModuleList(Weight(model.hidden, ffn, layout=layout, expert=True) for _ in range(self.local))
        self.shared = Feedforward(model, layout, groups, model.shared_ffn) if model.shared_ffn else None
        self.activate = Feedforward.activate.__get__(self)
        self.gated, self.fused = model.gated, layout.fused_gated

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.softmax(Column.apply(x, self.router.value, self.router, Group("alone", [0])).float(), dim=-1)
        shares, _ = scores.topk(self.model.top_k, dim=-1)
        # The host reads how many tokens each expert gets, and so waits for the device.
        torch.npu.synchronize()
        received = self.exchange(Permute.apply(x, x.shape[0] * self.model.top_k))
        received = Permute.apply(received, received.shape[0])  # from the order of ranks to that of experts
        each = max(1, round(received.shape[0] * self.IMBALANCE / self.local))
        alone = Group("alone", [0])
        outputs = []
        for up, down in zip(self.ups, self.downs, strict=True):
            part = Take.apply(received, each)
            y = self.activate(Column.apply(part, up.value, up, alone))
            outputs.append(Row.apply(y, down.value, down, alone))
        joined = Join.apply(received.shape[0], *outputs)
        joined = Permute.apply(joined, joined.shape[0])
        back = self.exchange(joined, back=True)
        y = Permute.apply(back * shares.to(back.dtype).reshape(-1, 1), x.shape[0])
        return y if self.shared is None else y + self.shared(x)

    def exchange(self, x: Tensor, back: bool = False) -> Tensor:
        """Tokens to the ranks of their experts, then all of a tensor-parallel group's tokens to each of its ranks."""
        if back and self.groups.tp.size > 1:
            x = Scatter.apply(x, self.groups.tp)
        if self.groups.ep.size > 1:
            x = Exchange.apply(x, self.groups.ep)
        if not back and self.groups.tp.size > 1:
            x = Gather.apply(x, self.groups.tp)
        return x


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.rows = x.shape[0]
        return ops.npu_moe_token_permute(x, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ops.npu_moe_token_unpermute(grad.contiguous(), ctx.rows), None


class Take(torch.autograd.Function):
    """One expert's rows, a view of the sorted tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.shape = x.shape
        return x.new_empty((rows, x.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_empty(ctx.shape), None


class Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: int, *parts: Tensor) -> Tensor:
        ctx.shapes = [part.shape for part in parts]
        return torch.cat(parts)[:rows].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(grad.new_empty(shape) for shape in ctx.shapes)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        out, work = group.all_to_all(x.contiguous())
        work.wait()
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return Exchange.forward(ctx, grad, ctx.group), None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        out, work = group.all_gather(x.contiguous())
        work.wait()
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out, work = ctx.group.reduce_scatter(grad.contiguous())
        work.wait()
        return out, None


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        out, work = group.reduce_scatter(x.contiguous())
        work.wait()
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return Gather.forward(ctx, grad, ctx.group), None


class Layer(nn.Module):
    def __init__(self, model: Model, layout: Layout, groups: Groups, index: int) -> None:
        super().__init__()
        self.layout = layout
        windowed = (index * model.window_share) % 1 + model.window_share >= 1
        norms = 2 + model.post_norms
        self.norms = nn.ModuleList(Weight(model.hidden, layout=layout) for _ in range(norms))
        self.attention = SelfAttention(model, layout, groups, windowed)
        routed = model.experts and index >= model.dense_layers
        self.mlp = Experts(model, layout, groups) if routed else Feedforward(model, layout, groups, model.ffn)
        self.fused_norm = layout.fused_norm or not model.gated

    def norm(self, x: Tensor, which: int) -> Tensor:
        return Norm.apply(x, self.norms[which].value, self.fused_norm)

    def forward(self, x: Tensor) -> Tensor:
        full = self.layout.recompute == "full"
        return checkpoint(self.body, x, use_reentrant=True, preserve_rng_state=False) if full else self.body(x)

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

    def forward(self, x: Tensor) -> Tensor:
        x = Norm.apply(x, self.norm.value, self.fused_norm)
        return CrossEntropy.apply(Column.apply(x, self.weight.value, self.weight, self.groups.tp), self.groups.tp)


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
        _reduce_if_last(ctx.weight)
        return None, None, None, None


class Stage:
    """Everything one NPU of pipeline stage ``stage`` holds, in ``layout.vpp`` chunks, and what it does with it."""

    current: Stage | None = None

    def __init__(self, model: Model, layout: Layout, stage: int) -> None:
        self.model, self.layout, self.stage = model, layout, stage
        self.groups = Groups(layout, stage)
        self.reducing = False
        self._reductions: list[Any] = []
        before = sum(layout.layers_of(i, model) for i in range(stage))
        count = layout.layers_of(stage, model)
        layers = [Layer(model, layout, self.groups, before + i) for i in range(count)]
        size = -(-count // layout.vpp)
        self.chunks = [layers[i * size : (i + 1) * size] for i in range(layout.vpp)]
        first, last = stage == 0, stage == layout.pp - 1
        self.embedding = Embedding(model, layout, self.groups) if first else None
        self.head = Head(model, layout, self.groups) if last else None
        self.modules = nn.ModuleList([*layers, *(m for m in (self.embedding, self.head) if m is not None)])
        self.weights = [module for module in self.modules.modules() if isinstance(module, Weight)]
        self.states = self._make_states()

    # ---- forward and backward

    def input_of(self, chunk: int) -> Tensor:
        layout = self.layout
        tokens = layout.micro_batch * layout.sequence // layout.cp
        if self.embedding is not None and chunk == 0:
            return torch.empty(tokens, dtype=torch.long, device="npu")
        share = layout.tp if layout.sequence_parallel else 1
        dtype = torch.float16 if layout.fp16 else torch.bfloat16
        return torch.empty((tokens // share, self.model.hidden), dtype=dtype, device="npu", requires_grad=True)

    def forward(self, chunk: int, last_micro_batch: bool = False) -> Tensor:
        x = self.input_of(chunk)
        if self.embedding is not None and chunk == 0:
            x = self.embedding(x)
        for layer in self.chunks[chunk]:
            x = layer(x)
        if self.head is not None and chunk == self.layout.vpp - 1:
            x = self.head(x)
        return x

    def backward(self, output: Tensor) -> None:
        Stage.current = self
        output.backward(None if output.dim() == 0 else torch.empty_like(output))

    # ---- the end of a step

    def data_group(self, weight: Weight) -> Group:
        return self.groups.expert_data if weight.expert else self.groups.data

    def start_reduction(self, weight: Weight) -> None:
        """Gradients over the data-parallel ranks, as soon as the last micro-batch has made them."""
        group = self.data_group(weight)
        if group.size == 1:
            return
        flat = weight.main_grad.view(-1)
        if self.layout.zero >= 2:  # what backward made of this weight, before the sum of each share is kept
            flat = weight.main_grad.new_empty(weight.value.numel())
        rest = flat.numel() % group.size
        flat = flat[: flat.numel() - rest] if rest else flat
        if flat.numel() == 0:
            return
        work = group.reduce_scatter(flat)[1] if self.layout.zero else group.all_reduce(flat)
        work.wait() if self.layout.zero >= 2 else self._reductions.append(work)

    def finish_reductions(self) -> None:
        for work in self._reductions:
            work.wait()
        self._reductions.clear()

    def reduce_gradients(self) -> None:
        for weight in self.weights:
            self.start_reduction(weight)
        self.finish_reductions()
        if self.model.tied_embeddings and self.groups.embedding.size > 1:
            ends = self.embedding or self.head
            self.groups.embedding.all_reduce(ends.weight.main_grad).wait()

    def gather_parameters(self) -> None:
        """ZeRO: each rank has updated its share; all get the whole."""
        if not self.layout.zero:
            return
        works = []
        for weight in self.weights:
            group = self.data_group(weight)
            if group.size > 1:
                whole = weight.value.detach().view(-1)
                size = max(1, whole.numel() // group.size)
                # In place, as Megatron's contiguous parameter buffer allows.
                works.append(group.all_gather_into(whole[: size * group.size], whole[:size]))
        for work in works:
            work.wait()

    def _shares(self, weight: Weight) -> int:
        return self.data_group(weight).size if self.layout.zero else 1

    def _make_states(self) -> list[tuple[Weight, Tensor, Tensor, Tensor]]:
        """fp32 master, first and second moment of each weight's share."""
        states = []
        for weight in self.weights:
            size = -(-weight.value.numel() // self._shares(weight))
            states.append((weight, *(torch.empty(size, device="npu") for _ in range(3))))
        return states

    def update(self) -> None:
        """Norm of the gradients, clipping, AdamW on the fp32 masters, copies to the 16-bit weights, and zeroing."""
        total = torch.empty((), device="npu")
        shares = []
        for weight, master, _, _ in self.states:
            share = weight.main_grad.view(-1)[: master.numel()]
            shares.append(share)
            total.add_(torch.linalg.vector_norm(share))
        if self.groups.data.size > 1:
            self.groups.data.all_reduce(total).wait()
        if self.groups.tp.size > 1:
            self.groups.tp.all_reduce(total).wait()
        for (weight, master, first, second), share in zip(self.states, shares, strict=True):
            share.mul_(total)
            grad = share if share.dtype == torch.float else share.float()
            ops.npu_apply_adam_w(master, first, second, grad)
            if not self.layout.reuse_master:
                weight.value.detach().view(-1)[: master.numel()].copy_(master[: weight.value.numel()])
            weight.main_grad.zero_()
