"""Pipeline schedules: when each stage works on which micro-batch, and how long the whole takes.

One-forward-one-backward (1F1B), and its interleaved form with several model chunks per stage, as Megatron-LM runs them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch on one stage, per model chunk; transfers to neighbours included."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]


def order(stage: int, stages: int, chunks: int, micro_batches: int) -> list[tuple[bool, int, int]]:
    """What ``stage`` does, in order: (is forward, chunk, micro-batch). Interleaving needs micro_batches % stages == 0."""
    total = micro_batches * chunks
    if chunks == 1:
        warmup = min(stages - stage - 1, total)
    else:
        warmup = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)

    def unit(position: int, forward: bool) -> tuple[bool, int, int]:
        block, inside = divmod(position, stages * chunks)
        chunk, offset = divmod(inside, stages)
        if chunks == 1:
            return forward, 0, position
        return forward, chunk if forward else chunks - 1 - chunk, block * stages + offset

    sequence = [unit(i, True) for i in range(warmup)]
    for i in range(total - warmup):
        sequence += [unit(warmup + i, True), unit(i, False)]
    return sequence + [unit(i, False) for i in range(total - warmup, total)]


def in_flight(stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Most forward chunks whose activations ``stage`` holds at once."""
    held = most = 0
    for forward, _, _ in order(stage, stages, chunks, micro_batches):
        held += 1 if forward else -1
        most = max(most, held)
    return most


# A stage's turn: stage, forward or not, chunk, micro-batch, start and end in seconds.
Turn = tuple[int, bool, int, int, float, float]


def _simulate(times: list[StageTimes], micro_batches: int, turns: list[Turn] | None = None) -> float:
    stages, chunks = len(times), len(times[0].forward)
    programs = [order(stage, stages, chunks, micro_batches) for stage in range(stages)]
    done: dict[tuple[bool, int, int], float] = {}  # (is forward, virtual stage, micro-batch) -> end
    clocks = [0.0] * stages
    position = [0] * stages
    last = stages * chunks - 1
    progress = True
    while progress:
        progress = False
        for stage, program in enumerate(programs):
            while position[stage] < len(program):
                forward, chunk, batch = program[position[stage]]
                virtual = chunk * stages + stage
                if forward:
                    ready = done.get((True, virtual - 1, batch)) if virtual else 0.0
                else:
                    ready = done.get((False, virtual + 1, batch) if virtual < last else (True, virtual, batch))
                if ready is None:
                    break
                took = (times[stage].forward if forward else times[stage].backward)[chunk]
                clocks[stage] = max(clocks[stage], ready) + took
                done[(forward, virtual, batch)] = clocks[stage]
                if turns is not None:
                    turns.append((stage, forward, chunk, batch, clocks[stage] - took, clocks[stage]))
                position[stage] += 1
                progress = True
    return max(clocks)


def picture(times: list[StageTimes], micro_batches: int, most: int = 3000) -> list[Turn]:
    """The turns of a step, of its first part if it has more than ``most``: enough micro-batches to fill and drain."""
    stages, chunks = len(times), len(times[0].forward)
    fewer = min(micro_batches, 2 * stages)
    if 2 * fewer * stages * chunks > most:
        return []
    turns: list[Turn] = []
    _simulate(times, fewer, turns)
    return turns


def makespan(times: list[StageTimes], micro_batches: int) -> float:
    """Seconds from the first forward to the last backward of a step.

    A long step is its first part, simulated, and a steady state of whole rounds at the pace of the slowest stage.
    """
    stages, chunks = len(times), len(times[0].forward)
    limit = stages * 4
    if micro_batches > limit and (chunks == 1 or micro_batches % stages == 0):
        short = limit + micro_batches % stages if chunks == 1 else limit
        slowest = max(sum(t.forward) + sum(t.backward) for t in times)
        return _simulate(times, short) + (micro_batches - short) * slowest
    return _simulate(times, micro_batches)


def bubble(times: list[StageTimes], micro_batches: int) -> float:
    """Share of the step that the slowest stage does nothing for want of input."""
    total = makespan(times, micro_batches)
    busy = micro_batches * max(sum(t.forward) + sum(t.backward) for t in times)
    return 1 - busy / total if total else 0.0
