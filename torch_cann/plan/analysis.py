"""From traces to figures: one time axis for all ranks, the last step on it, and where its time and memory went."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torch_cann import _C
from torch_cann.plan import stragglers
from torch_cann.plan.calibration import Calibration
from torch_cann.plan.errors import PlanError
from torch_cann.plan.ranks import COLLECTIVE, LAUNCH, RECEIVE, SEND, actions
from torch_cann.plan.script import Trace

_sim = _C._sim

SPENT = {
    "cube": "matrix products",
    "vector": "vector operators",
    "copy": "host copies",
    "exposed_collective": "exposed communication",
    "late_rank": "waiting for other ranks (pipeline bubble)",
    "host_bound": "waiting for the host",
    "idle": "waiting for other streams",
}
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "point_to_point",
    "barrier",
)


@dataclass
class RankTimes:
    """A trace and when its actions happened, in microseconds; ``window`` is the last step."""

    trace: Trace
    start: np.ndarray
    end: np.ndarray
    marks: list[tuple[int, float, dict[str, float]]]
    spent: dict[str, float]
    window: tuple[float, float] = (0.0, 0.0)
    table: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def step_us(self) -> float:
        return self.window[1] - self.window[0]

    def step_spent(self) -> dict[str, float]:
        """Where the last step's time went; sums up to step_us but for the optimizer's tail on other streams."""
        if not self.marks:
            return dict(self.spent)
        last = self.marks[-1][2]
        before = self.marks[-2][2] if len(self.marks) > 1 else dict.fromkeys(last, 0.0)
        return {name: last[name] - before[name] for name in last}

    def in_window(self) -> np.ndarray:
        return (self.start >= self.window[0]) & (self.start < self.window[1])


def place(traces: list[Trace]) -> list[RankTimes]:
    """Replays the traces together. Raises PlanError if ranks wait for each other for ever."""
    ranks = {trace.rank for trace in traces}
    inputs = []
    for trace in traces:
        names = [f"{name}:{members[0]}:{members[-1]}:{len(members)}" for name, members in trace.groups]
        members = [[rank for rank in group if rank in ranks] for _, group in trace.groups]
        shares = [_sim.network_share(group) for _, group in trace.groups]
        inputs.append((trace.rank, trace.actions, names, members, shares))
    try:
        results = _sim.replay(inputs)
    except RuntimeError as error:
        raise PlanError(str(error)) from error
    placed = []
    for trace, (start, end, spent, marks) in zip(traces, results, strict=True):
        times = RankTimes(trace, np.frombuffer(start), np.frombuffer(end), marks, spent, table=actions(trace))
        finish = float(max(times.start.max(initial=0), times.end.max(initial=0)))
        if marks:
            times.window = (marks[-2][1] if len(marks) > 1 else 0.0, marks[-1][1])
        else:
            times.window = (0.0, finish)
        placed.append(times)
    return placed


def top_operators(times: RankTimes, count: int = 12) -> list[dict[str, Any]]:
    """Operators of the last step by device time; collectives count their own duration, waiting excluded."""
    chosen = times.table[times.in_window()]
    spent: dict[tuple[str, str], list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for kind, what, us, collective in zip(
        chosen["kind"], chosen["what"], chosen["us"], chosen["collective"], strict=True
    ):
        if kind == LAUNCH:
            name, engine = times.trace.rows[what][:2]
        elif kind in (COLLECTIVE, SEND, RECEIVE):
            name, engine = COLLECTIVES[collective], "collective"
        else:
            continue
        entry = spent[(name, engine)]
        entry[0] += float(us)
        entry[1] += 1
    ordered = sorted(spent.items(), key=lambda item: -item[1][0])[:count]
    return [{"name": name, "engine": engine, "us": us, "calls": int(n)} for (name, engine), (us, n) in ordered]


def top_sites(times: RankTimes, count: int = 12) -> list[dict[str, Any]]:
    """Lines of the script by the device time that they cause (backward counts for the line that calls it)."""
    chosen = times.table[times.in_window() & (times.table["kind"] == LAUNCH)]
    totals = np.bincount(chosen["site"], weights=chosen["us"], minlength=len(times.trace.sites))
    order = np.argsort(-totals)[:count]
    return [{"site": times.trace.sites[i] or "(none)", "us": float(totals[i])} for i in order if totals[i] > 0]


def not_modelled(times: RankTimes) -> dict[str, Any]:
    """Share of device time in operators that are not in the cost model's table."""
    chosen = times.table[times.in_window() & (times.table["kind"] == LAUNCH)]
    total, unknown = 0.0, collections.Counter()
    for what, us in zip(chosen["what"], chosen["us"], strict=True):
        name, _, modelled = times.trace.rows[what][:3]
        total += float(us)
        if not modelled:
            unknown[name] += float(us)
    share = sum(unknown.values()) / total if total else 0.0
    return {"share": share, "operators": [name for name, _ in unknown.most_common(8)]}


def step_flops(times: RankTimes) -> float:
    chosen = times.table[times.in_window() & (times.table["kind"] == LAUNCH)]
    flops = np.array([row[4] for row in times.trace.rows] or [0.0])
    return float(flops[chosen["what"]].sum()) if len(chosen) else 0.0


def memory_curve(times: RankTimes, points: int = 600) -> list[tuple[float, int, int]]:
    """Allocated bytes over the last step: (microseconds, allocated, gradients of it), thinned to the largest of each bin."""
    table, inside = times.table, times.in_window() & (times.table["allocated"] > 0)
    where = np.nonzero(inside)[0]
    if len(where) == 0:
        return []
    marks, sizes = zip(*(times.trace.gradient_curve or [(0, 0)]), strict=True)
    marks = np.array(marks)
    curve = []
    for part in np.array_split(where, min(points, len(where))):
        peak = part[np.argmax(table["allocated"][part])]
        position = int(np.searchsorted(marks, peak, side="right")) - 1
        gradients = sizes[position] if position >= 0 else 0
        curve.append((float(times.start[peak]) - times.window[0], int(table["allocated"][peak]), int(gradients)))
    return curve


# An optimizer of another library tells nobody that it steps.
_NO_STEP = (
    "no optimizer step was seen, so what is called a step here is the whole script, and memory is without states that "
    "an optimizer would make at its first step. Steps of classes that do not derive from torch.optim.Optimizer are not seen."
)


def summarize(traces: list[Trace], calibration: Calibration, tokens_per_step: int | None, world: int) -> dict[str, Any]:
    """The report as plain data; every duration is of the model's device, before and after calibration as named."""
    soc = _sim.soc()
    placed = place(traces)
    slowest = max(placed, key=lambda times: times.step_us)
    raw = slowest.step_us * stragglers.slowdown(world)
    seconds = raw / 1e6 * calibration.factor
    low, high = calibration.range(seconds)
    flops = max(step_flops(times) for times in placed)
    mean_flops = sum(step_flops(times) for times in placed) / len(placed)
    report: dict[str, Any] = {
        "soc": soc,
        "world_size": world,
        "calibration": calibration.as_dict(),
        "step": {
            "seconds": seconds,
            "low": low,
            "high": high,
            "uncalibrated_seconds": raw / 1e6,
            "steps_run": slowest.trace.steps,
        },
        "hardware_flops_utilization": mean_flops / (seconds * soc["peak_fp16_tflops"] * 1e12) if seconds else 0.0,
        "flops_per_step_and_rank": flops,
        "ranks": [_rank(times) for times in placed],
        "assumptions": [dict(entry, rank=trace.rank) for trace in traces for entry in trace.assumptions],
        "notes": [*stragglers.notes(world), *traces[0].notes],
    }
    if not any(trace.steps or trace.failure for trace in traces):
        report["notes"].append(_NO_STEP)
    if pipeline := _pipeline(placed):
        report["pipeline"] = pipeline
        report["bubble"] = pipeline["bubble"]
        report["notes"].append(_sentence(pipeline))
    if tokens_per_step and seconds:
        report["tokens_per_second"] = tokens_per_step / seconds
        report["tokens_per_second_and_npu"] = tokens_per_step / seconds / world
    return report


# Schedules that compute a stage's whole backward at once, and run its chunks one after another.
_FILL_AND_DRAIN = {"ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"}


def _pipeline(placed: list[RankTimes]) -> dict[str, Any] | None:
    """The bubble of a schedule of torch.distributed.pipelining, as a share of the step: (p - 1) / (v m + p - 1) with p ranks
    of v chunks and m micro-batches (Narayanan et al., 2021), which takes all stages to be equal and transfers to be free;
    and the share in which ranks wait for others here, in the mean."""
    schedule = placed[0].trace.schedule
    if schedule is None:
        return None
    waiting = [times.step_spent()["late_rank"] / times.step_us for times in placed if times.step_us > 0]
    p, work = schedule.ranks, schedule.chunks * schedule.micro_batches
    return {
        "schedule": schedule.name,
        "ranks": p,
        "chunks": schedule.chunks,
        "micro_batches": schedule.micro_batches,
        "bubble_by_formula": (p - 1) / (work + p - 1) if schedule.name in _FILL_AND_DRAIN else None,
        "bubble": sum(waiting) / len(waiting) if waiting else 0.0,
    }


def _sentence(pipeline: dict[str, Any]) -> str:
    formula = pipeline["bubble_by_formula"]
    return (
        f"{pipeline['schedule']} of {pipeline['ranks']} ranks x {pipeline['chunks']} stages, "
        f"{pipeline['micro_batches']} micro-batches: ranks wait for others {pipeline['bubble']:.1%} of the step"
        + (f"; equal stages and free transfers would give {formula:.1%}." if formula is not None else ".")
    )


def _rank(times: RankTimes) -> dict[str, Any]:
    memory = times.trace.memory
    return {
        "rank": times.trace.rank,
        "step_us": times.step_us,
        "spent_us": times.step_spent(),
        "operators": top_operators(times),
        "sites": top_sites(times),
        "not_modelled": not_modelled(times),
        "memory": {
            "capacity": memory.capacity,
            "peak": memory.peak,
            "peak_allocated": memory.peak_allocated,
            "peak_reserved": memory.peak_reserved,
            "parameters": memory.parameters,
            "gradients": memory.gradients,
            "optimizer": memory.optimizer,
            "activations": memory.activations,
            "communication_and_context": memory.outside,
            "workspace": memory.workspace,
            "workspace_range": memory.workspace_range,
        },
        "memory_curve": memory_curve(times),
        "failure": times.trace.failure,
        "out_of_memory": times.trace.out_of_memory,
        "tool_seconds": times.trace.seconds,
    }
