"""`npu-plan search`: the layouts of a model on a given number of NPUs, run one by one, best first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from torch_cann import _C
from torch_cann.plan import estimate
from torch_cann.plan.errors import PlanError
from torch_cann.plan.layout import Layout, Model, check, with_fields


@dataclass(frozen=True)
class Candidate:
    layout: Layout
    seconds: float  # of a step, after calibration
    peak: int  # bytes of the fullest stage
    fits: bool


def _powers(limit: int) -> list[int]:
    return [2**i for i in range(limit.bit_length()) if 2**i <= limit]


def _state_bytes(model: Model, layout: Layout) -> float:
    """Least bytes of weights, gradients and optimizer states on a card."""
    matrices = 3 if model.gated else 2
    experts = matrices * model.hidden * (model.expert_ffn or model.ffn) * model.experts / layout.ep
    others = model.attention_parameters + (matrices * model.hidden * model.ffn if not model.experts else 0)
    shards = layout.dp * layout.cp

    def states(weights: float, shards: int) -> float:
        return weights * (2 + 4 / (shards if layout.zero >= 2 else 1) + 12 / (shards if layout.zero else 1))

    layers = model.layers / layout.pp
    return layers / layout.tp * (states(others, shards) + states(experts, max(1, shards // layout.ep)))


def _activation_bytes(model: Model, layout: Layout) -> float:
    """Least bytes of what forward keeps of the micro-batches that the first stage has under way: 16-bit inputs of its
    products, norms and attention; of layers that are computed again their inputs."""
    tokens = layout.micro_batch * layout.sequence / layout.cp / layout.tp
    feedforward = model.top_k * (model.expert_ffn or model.ffn) + model.shared_ffn if model.experts else model.ffn
    width = 2 * model.hidden
    if layout.recompute == "full":
        width = model.hidden
    elif not model.latent:
        width += model.head * (2 * model.heads + 2 * model.kv) + feedforward * (3 if model.gated else 2)
    in_flight = min(layout.pp, layout.micro_batches)
    return 2 * width * tokens * model.layers / layout.pp * in_flight


def _least_bytes(model: Model, layout: Layout) -> float:
    """To skip what cannot fit without running it."""
    return _state_bytes(model, layout) + _activation_bytes(model, layout)


def _promise(model: Model, layout: Layout, capacity: int) -> tuple[int, ...]:
    """Smaller is more likely to fit and be fast: a tenth of HBM is left for buffers, and what splits a model costs
    communication, bubbles or arithmetic."""
    crowded = _least_bytes(model, layout) > 0.9 * capacity
    return crowded, layout.recompute != "none", layout.tp * layout.pp * layout.cp, layout.ep, -layout.micro_batch


def layouts(model: Model, base: Layout, npus: int, capacity: int) -> Iterator[Layout]:
    """Layouts of exactly ``npus`` ranks that pass check() and may fit in ``capacity`` bytes; the batch, the sequence and
    all flags are those of ``base``."""
    contexts = [1] if base.sequence < 16384 else _powers(8)
    experts = _powers(min(model.experts, 64)) if model.experts else [1]
    for tp, pp, cp, ep in itertools.product(_powers(8), _powers(min(model.layers, npus)), contexts, experts):
        if npus % (tp * pp * cp):
            continue
        dp = npus // (tp * pp * cp)
        for micro, recompute in itertools.product((1, 2, 4), ("none", "full")):
            layout = with_fields(
                base,
                tp=tp,
                pp=pp,
                cp=cp,
                ep=ep,
                dp=dp,
                micro_batch=micro,
                recompute=recompute,
                stage_layers=(),
                fused_collectives=base.fused_collectives and tp > 1,
            )
            try:
                check(model, layout)
            except PlanError:
                continue
            if _least_bytes(model, layout) < capacity:
                yield layout


def search(
    model: Model, base: Layout, npus: int, factor: float, limit: int, capacity: int | None = None
) -> tuple[list[Candidate], int]:
    """(layouts run, sorted: those that fit first, then by the time of a step; how many were possible).

    Runs the ``limit`` most promising on cards of ``capacity`` bytes (None: the chip's). Raises PlanError when no layout is
    possible at all.
    """
    capacity = capacity or _C._sim.soc()["usable_hbm_bytes"]
    possible = sorted(layouts(model, base, npus, capacity), key=lambda layout: _promise(model, layout, capacity))
    candidates = []
    for layout in possible[:limit]:
        seconds, stages = estimate.run(model, layout)
        peak = max(stage.memory["peak"] for stage in stages.values())
        candidates.append(Candidate(layout, seconds * factor, peak, peak <= capacity))
    if not candidates:
        raise PlanError(
            f"no layout of this model on {npus} NPUs divides its heads, layers and batch and could fit in HBM"
        )
    return sorted(candidates, key=lambda c: (not c.fits, c.seconds)), len(possible)


def frontier(candidates: list[Candidate]) -> list[Candidate]:
    """Of those that fit, the ones that no other beats in both time and memory."""
    best, chosen = float("inf"), []
    for candidate in (c for c in candidates if c.fits):  # by time
        if candidate.peak < best:
            best = candidate.peak
            chosen.append(candidate)
    return chosen
