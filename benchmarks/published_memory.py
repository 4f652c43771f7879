"""Figure 1 of arXiv 2205.05198 by running the reference program: what a card holds of layers, in GiB.

The paper counts layers only: no embeddings, no logits, no allocator, and not the norms' statistics. Activations are those
of one micro-batch in each of the layers that the first pipeline stage has in flight.
"""

from __future__ import annotations

import gc
from dataclasses import replace

import torch

from torch_cann.plan import schedule
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.stage import Stage

_GIB = 2**30


def layer_memory(model: Model, layout: Layout) -> dict[str, float]:
    """The three published figures of a row: states of the weights, and activations without any saving and with sequence
    parallelism and selective recomputation. The process must be dry."""
    in_flight = (
        schedule.in_flight(0, layout.pp, layout.vpp, layout.micro_batches) * model.layers / (layout.pp * layout.vpp)
    )
    plain = replace(layout, sequence_parallel=False, recompute="none")
    frugal = replace(layout, sequence_parallel=True, recompute="selective")
    return {
        "params_and_optimizer": _states(model, layout) * model.layers / layout.pp / _GIB,
        "activations_no_recompute": _activations(model, plain) * in_flight / _GIB,
        "activations_seq_selective": _activations(model, frugal) * in_flight / _GIB,
    }


def _two_layers(model: Model, layout: Layout) -> Stage:
    """A stage of two layers that is neither the first nor the last."""
    return Stage(replace(model, layers=6), replace(layout, pp=3, vpp=1, stage_layers=(), recomputed_layers=()), 1)


def _states(model: Model, layout: Layout) -> float:
    """Bytes of one layer's weight matrices, their gradients and the optimizer's states."""
    stage = _two_layers(model, layout)
    matrices = [state for state in stage.states if state[0].value.dim() > 1]
    held = sum(
        weight.value.nbytes + weight.main_grad.nbytes + sum(t.nbytes for t in rest) for weight, *rest in matrices
    )
    return held / 2


def _activations(model: Model, layout: Layout) -> float:
    """Bytes that one layer's forward pass leaves, without the four a token that each norm keeps."""
    stage = _two_layers(model, layout)
    x = stage.input_of(0)
    gc.collect()
    before = _requested()
    output = x
    for layer in stage.chunks[0]:
        output = layer(output)
    statistics = 4 * len(stage.chunks[0][0].norms) * x.shape[0]
    return (_requested() - before) / 2 - statistics


def _requested() -> int:
    """Bytes asked for; what is allocated has the allocator's rounding in it."""
    return torch.npu.memory_stats()["requested_bytes.all.current"]
