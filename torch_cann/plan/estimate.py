"""`npu-plan estimate`: the reference program run dry, stage by stage, and its step put together by the schedule."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torch_cann import _C
from torch_cann.plan import contention, schedule, stragglers
from torch_cann.plan.calibration import Calibration
from torch_cann.plan.errors import PlanError
from torch_cann.plan.layout import Layout, Model, check
from torch_cann.plan.reference.stage import Stage

_sim = _C._sim
_GIB = 2**30

# Beyond the pools: the driver's and CANN's context, and workspaces of operators (estimate: 64 GB cards report about 3.4 GB
# in use when idle, most of it the driver's own, which the usable capacity already leaves out).
CONTEXT_BYTES = 1 * _GIB


@dataclass
class StageResult:
    """One stage: seconds per chunk and micro-batch, seconds at the step's end, bytes at the peak."""

    stage: int
    layers: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    transfer: float
    gradients: float  # reduction that is not hidden
    parameters: float  # gathering that is not hidden
    update: float
    spent: dict[str, float]  # seconds of one micro-batch, forward and backward of each chunk
    memory: dict[str, int]

    def times(self) -> schedule.StageTimes:
        return schedule.StageTimes(
            tuple(f + self.transfer for f in self.forward), tuple(b + self.transfer for b in self.backward)
        )


def _now() -> float:
    return _sim.now() / 1e6


def _stages_that_differ(model: Model, layout: Layout) -> list[int]:
    """Stages of which none does the same as another: first, last, and one of each number of layers in between.

    Memory depends on how many micro-batches are in flight, which only falls from stage to stage: of equal stages the
    first stands for all.
    """
    chosen: dict[Any, int] = {}
    for stage in range(layout.pp):
        chosen.setdefault(_kind_of_stage(model, layout, stage), stage)
    return sorted(chosen.values())


def _kind_of_stage(model: Model, layout: Layout, stage: int) -> tuple[Any, ...]:
    """Equal for stages that do the same."""
    before = sum(layout.layers_of(i, model) for i in range(stage))
    count = layout.layers_of(stage, model)
    again = layout.recomputed_layers[stage] if layout.recomputed_layers else count
    dense = min(count, max(0, model.dense_layers - before)) if model.experts else 0
    return stage == 0, stage == layout.pp - 1, count, again, dense


class _Spent:
    """Where the compute stream's time goes, of the parts that are counted."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_sim.spent(), 0.0)

    @contextlib.contextmanager
    def counting(self, on: bool) -> Iterator[None]:
        before = _sim.spent()
        yield
        if on:
            after = _sim.spent()
            for name in after:
                self.seconds[name] += (after[name] - before[name]) / 1e6


def _run_stage(model: Model, layout: Layout, index: int) -> StageResult:
    gc.collect()
    torch.npu.empty_cache()
    _sim.reset()
    before = torch.npu.mem_get_info()[0] + _sim.workspace(0)[0]
    torch.npu.reset_peak_memory_stats()
    stage = Stage(model, layout, index)
    parameters = sum(w.value.nbytes for w in stage.weights)
    gradients = sum(w.main_grad.nbytes for w in stage.weights)
    optimizer = sum(t.nbytes for _, *tensors in stage.states for t in tensors)
    if layout.reuse_master:
        optimizer -= sum(w.value.nbytes for w in stage.weights) // max(1, stage._shares(stage.weights[0]))

    forward, backward = [0.0] * layout.vpp, [0.0] * layout.vpp
    spent = _Spent()
    held: list[tuple[int, torch.Tensor]] = []
    count = max(layout.vpp, schedule.in_flight(index, layout.pp, layout.vpp, layout.micro_batches))
    for i in range(count):
        chunk = (i // layout.pp) % layout.vpp if layout.vpp > 1 else 0
        first = forward[chunk] == 0.0
        with spent.counting(first):
            started = _now()
            held.append((chunk, stage.forward(chunk)))
            forward[chunk] = _now() - started
    peak_chunks: set[int] = set()
    while held and len(peak_chunks) < layout.vpp:
        chunk, output = held.pop()
        if chunk in peak_chunks:
            continue
        peak_chunks.add(chunk)
        with spent.counting(True):
            started = _now()
            stage.backward(output)
            del output
            backward[chunk] = _now() - started
    if len(peak_chunks) < layout.vpp:
        raise PlanError(f"the schedule never runs all {layout.vpp} chunks of stage {index}")
    held.clear()
    reduction, gathering, update = _end_of_step(stage, layout)
    peak = torch.npu.max_memory_reserved()
    allocated = torch.npu.max_memory_allocated()
    outside = before - torch.npu.mem_get_info()[0] - _sim.workspace(0)[0] - torch.npu.memory_reserved()
    result = StageResult(
        stage=index,
        layers=layout.layers_of(index, model),
        forward=tuple(forward),
        backward=tuple(backward),
        transfer=_transfer(model, layout, stage),
        gradients=reduction,
        parameters=gathering,
        update=update,
        spent=spent.seconds,
        memory={
            "parameters": parameters,
            "gradients": gradients,
            "optimizer": optimizer,
            "activations": max(0, allocated - parameters - gradients - optimizer),
            "communication_and_context": outside + CONTEXT_BYTES,
            "peak_allocated": allocated,
            "peak_reserved": peak,
            "peak": peak + outside + CONTEXT_BYTES - (parameters if layout.reuse_master else 0),
            "capacity": _sim.soc()["usable_hbm_bytes"],
        },
    )
    return result


def _end_of_step(stage: Stage, layout: Layout) -> tuple[float, float, float]:
    """Seconds that reduction of gradients and gathering of parameters add to the step, and of the update.

    What overlaps with a pass is what this pass takes longer when both run and share the card's network.
    """
    rank = stage.groups.rank

    def seconds_of(work: Callable[[], Any]) -> float:
        return contention.seconds_of(work, rank)

    many = stage.groups.data.size > 1
    if layout.overlap_gradients and many:
        alone = seconds_of(_backward_of(stage, reduce=False))
        reduction = max(0.0, seconds_of(_backward_of(stage, reduce=True)) - alone)
    else:
        reduction = seconds_of(stage.reduce_gradients)
    update = seconds_of(stage.update)
    if layout.overlap_parameters and many:
        with torch.no_grad():  # no backward follows, so nothing may be kept for one
            alone = seconds_of(lambda: stage.forward(0))
            gathering = max(0.0, seconds_of(lambda: stage.gather_parameters(lambda: stage.forward(0))) - alone)
    else:
        gathering = seconds_of(stage.gather_parameters)
    return reduction, gathering, update


def _backward_of(stage: Stage, *, reduce: bool) -> Callable[[], None]:
    """A backward pass, whose forward is done here; with the last micro-batch's reduction of gradients beside it or not."""
    output = stage.forward(0)

    def work() -> None:
        stage.overlap_reductions(reduce)
        stage.backward(output)
        stage.finish_reductions()
        stage.overlap_reductions(False)

    return work


def _transfer(model: Model, layout: Layout, stage: Stage) -> float:
    """Seconds to hand one micro-batch to the next stage, or its gradient back."""
    if layout.pp == 1:
        return 0.0
    size = layout.micro_batch * layout.sequence / layout.cp * model.hidden * 2
    ends = [stage.groups.rank, stage.groups.next]
    us = _sim.collective_us("point_to_point", size / layout.tp, ends)
    if layout.tp > 1 and not layout.sequence_parallel:
        # Each tensor-parallel rank sends its share, and the receivers gather (arXiv 2104.04473, section 4.1).
        us += _sim.collective_us("all_gather", size, [ends[0] + i for i in range(layout.tp)])
    return us / 1e6


def step_seconds(stages: dict[int, StageResult], layout: Layout) -> float:
    """The model's time of a step, before calibration; ``stages`` has every stage."""
    everything = [stages[stage] for stage in range(layout.pp)]
    tail = max(stage.gradients + stage.parameters + stage.update for stage in everything)
    alone = schedule.makespan([stage.times() for stage in everything], layout.micro_batches) + tail
    return alone * stragglers.slowdown(layout.world)


def run(model: Model, layout: Layout) -> tuple[float, dict[int, StageResult]]:
    """(seconds of a step before calibration, results of the stages that differ). Raises PlanError for a bad layout.

    The process must be dry, with more HBM than the chip has: whether the program fits is for the caller to compare.
    """
    check(model, layout)
    results = {index: _run_stage(model, layout, index) for index in _stages_that_differ(model, layout)}
    return step_seconds(_fill(results, model, layout), layout), results


def _fill(results: dict[int, StageResult], model: Model, layout: Layout) -> dict[int, StageResult]:
    """Every stage's result, equal ones shared."""
    filled = {}
    by_kind = {}
    for stage in range(layout.pp):
        kind = _kind_of_stage(model, layout, stage)
        if stage in results:
            by_kind[kind] = results[stage]
        filled[stage] = by_kind[kind]
    return filled


def summarize(model: Model, layout: Layout, calibration: Calibration) -> dict[str, Any]:
    """The report of `npu-plan estimate`, in the form of analysis.summarize()."""
    raw, results = run(model, layout)
    soc = _sim.soc()
    seconds = raw * calibration.factor
    low, high = calibration.range(seconds)
    tokens = layout.global_batch * layout.sequence
    mfu = model.flops_per_token(layout.sequence) * tokens / (seconds * layout.world * soc["peak_fp16_tflops"] * 1e12)
    filled = _fill(results, model, layout)
    times = [filled[stage].times() for stage in range(layout.pp)]
    return {
        "soc": soc,
        "world_size": layout.world,
        "calibration": calibration.as_dict(),
        "step": {"seconds": seconds, "low": low, "high": high, "uncalibrated_seconds": raw, "steps_run": 1},
        "tokens_per_second": tokens / seconds,
        "tokens_per_second_and_npu": tokens / seconds / layout.world,
        "model_flops_utilization": mfu,
        "bubble": schedule.bubble(times, layout.micro_batches),
        "turns": schedule.picture(times, layout.micro_batches) if layout.pp > 1 else [],
        "ranks": [
            {
                "rank": result.stage * layout.tp * layout.cp * layout.dp,
                "step_us": (sum(result.forward) + sum(result.backward)) * 1e6,
                "spent_us": {name: value * 1e6 for name, value in result.spent.items()},
                "operators": [],
                "sites": [],
                "not_modelled": {"share": 0.0, "operators": []},
                "memory": result.memory,
                "memory_curve": [],
                "failure": None,
                "out_of_memory": None,
                "end_of_step_us": {
                    "gradients": result.gradients * 1e6,
                    "parameters": result.parameters * 1e6,
                    "update": result.update * 1e6,
                },
            }
            for result in results.values()
        ],
        "assumptions": [],
        "notes": _notes(layout, soc),
    }


def _notes(layout: Layout, soc: dict[str, Any]) -> list[str]:
    notes = stragglers.notes(layout.world)
    if not layout.fp16 and not soc["bf16_cube"]:
        notes.append(
            f"{soc['name']} multiplies bfloat16 in float32, at {soc['fp32_ratio']:g} of the fp16 peak: --dtype fp16 is faster"
        )
    return notes
