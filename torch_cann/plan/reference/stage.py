"""What one NPU of a pipeline stage holds and does in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torch_cann.plan.device_ops import Group, ops
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.layers import Embedding, Head, Layer
from torch_cann.plan.reference.weights import Groups, Weight


class _Handed(torch.autograd.Function):
    """The end of a stage that is not the last: the next one hands back the gradient. A number on the host stands for the
    loss, since starting backward with a gradient given imports sympy, half a second, and takes no time on the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.empty(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Tensor:
        return torch.empty_like(*ctx.saved_tensors)


class Stage:
    """Everything one NPU of pipeline stage ``stage`` holds, in ``layout.vpp`` chunks, and what it does with it."""

    def __init__(self, model: Model, layout: Layout, stage: int) -> None:
        self.model, self.layout, self.stage = model, layout, stage
        self.groups = Groups(layout, stage)
        self._reductions: list[Any] = []
        before = sum(layout.layers_of(i, model) for i in range(stage))
        count = layout.layers_of(stage, model)
        size = -(-count // layout.vpp)
        again = 0
        if layout.recompute == "full":
            again = layout.recomputed_layers[stage] if layout.recomputed_layers else count
        layers = [Layer(model, layout, self.groups, before + i, i % size < again) for i in range(count)]
        self.chunks = [layers[i * size : (i + 1) * size] for i in range(layout.vpp)]
        first, last = stage == 0, stage == layout.pp - 1
        self.embedding = Embedding(model, layout, self.groups) if first else None
        self.head = Head(model, layout, self.groups) if last else None
        self.modules = nn.ModuleList([*layers, *(m for m in (self.embedding, self.head) if m is not None)])
        self.weights = [module for module in self.modules.modules() if isinstance(module, Weight)]
        self.states = self._make_states()
        self.overlap_reductions(False)

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
        (output if output.dim() == 0 else _Handed.apply(output)).backward()
        if self.layout.zero >= 2:
            self.finish_reductions()

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
        if self.layout.zero:  # in place, as Megatron's gradient buffer allows
            work = group.reduce_scatter_into(flat[: flat.numel() // group.size], flat)
        else:
            work = group.all_reduce(flat)
        self._reductions.append(work)
        if self.layout.zero >= 2 and len(self._reductions) > 2:  # each holds a whole gradient
            self._reductions.pop(0).wait()

    def overlap_reductions(self, on: bool) -> None:
        """Whether backward starts the reduction of each weight's gradient once it is there; with ZeRO 2 it always does,
        since a rank keeps sums of its share only."""
        for weight in self.weights:
            weight.when_ready = self.start_reduction if on or self.layout.zero >= 2 else None

    def finish_reductions(self) -> None:
        for work in self._reductions:
            work.wait()
        self._reductions.clear()

    def reduce_gradients(self) -> None:
        if self.layout.zero < 2:
            for weight in self.weights:
                self.start_reduction(weight)
            self.finish_reductions()
        if self.model.tied_embeddings and self.groups.embedding.size > 1:
            ends = self.embedding or self.head
            self.groups.embedding.all_reduce(ends.weight.main_grad).wait()

    def start_gathering(self) -> list[Any]:
        """ZeRO: each rank has updated its share; all get the whole. Works to wait for."""
        works: list[Any] = []
        if not self.layout.zero:
            return works
        for weight in self.weights:
            group = self.data_group(weight)
            if group.size > 1:
                whole = weight.value.detach().view(-1)
                size = max(1, whole.numel() // group.size)
                # In place, as Megatron's contiguous parameter buffer allows.
                works.append(group.all_gather_into(whole[: size * group.size], whole[:size]))
        return works

    def gather_parameters(self, meanwhile: Callable[[], Any] | None = None) -> None:
        """start_gathering(), what else is done ``meanwhile``, and the wait."""
        works = self.start_gathering()
        if meanwhile is not None:
            meanwhile()
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
