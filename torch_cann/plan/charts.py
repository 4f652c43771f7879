"""Pictures of a report as SVG text: shares as bars, HBM over a step, the pipeline's turns. No script, nothing fetched."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from torch_cann.plan.analysis import SPENT
from torch_cann.plan.report import duration

_GIB = 2**30
_WIDTH = 1000.0

# From the bottom of a stack: key in a rank's memory, what it is, colour.
MEMORY = (
    ("communication_and_context", "communication and context", "#94a3b8"),
    ("parameters", "parameters", "#2563eb"),
    ("optimizer", "optimizer", "#7c3aed"),
    ("gradients", "gradients", "#f59e0b"),
    ("activations", "activations and temporaries", "#10b981"),
)
SPENT_COLOURS = dict(
    zip(SPENT, ("#2563eb", "#10b981", "#64748b", "#ef4444", "#f97316", "#f59e0b", "#cbd5e1"), strict=True)
)


def key(entries: Iterable[tuple[str, str]]) -> str:
    """What the colours mean: (name, colour) each."""
    items = "".join(f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>' for name, colour in entries)
    return f'<p class="key">{items}</p>'


def _svg(height: float, parts: Iterable[str], label: str) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{html.escape(label)}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, colour: str, title: str, inside: str = "") -> str:
    """A rectangle with a tooltip, and ``inside`` written on it where it fits."""
    shape = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{colour}">'
        f"<title>{html.escape(title)}</title></rect>"
    )
    if inside and width > 7.5 * len(inside):
        shape += _text(x + width / 2, y + height / 2 + 4, inside, "middle", "inside")
    return shape


def breakdown(ranks: list[dict[str, Any]]) -> str:
    """A bar per rank, as long as its step: what its compute stream did or waited for."""
    left, row, thick = 80.0, 30, 22
    longest = max((rank["step_us"] for rank in ranks), default=1) or 1
    parts = []
    for position, rank in enumerate(ranks):
        x, y = left, position * row + 2.0
        parts.append(_text(0, y + 16, f"rank {rank['rank']}"))
        for name, colour in SPENT_COLOURS.items():
            us = rank["spent_us"][name]
            width = us / longest * (_WIDTH - left)
            share = us / (rank["step_us"] or 1)
            title = f"{SPENT[name]}: {duration(us / 1e6)}, {share:.1%}"
            parts.append(_bar(x, y, width, thick, colour, title, f"{share:.0%}"))
            x += width
    return _svg(len(ranks) * row + 4, parts, "where the step goes")


def _capacity_line(x: float, height: float, capacity: int) -> str:
    line = f'<line class="capacity" x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="{height:.0f}"/>'
    return line + _text(x, 12, f"{capacity / _GIB:.1f} GiB", "middle", "capacity")


def memory_bars(ranks: list[dict[str, Any]]) -> str:
    """A bar per rank: HBM at the peak by category, and the card's capacity as a line."""
    left, row, thick, top = 80.0, 30, 22, 20.0
    most = max(max(rank["memory"]["peak"], rank["memory"]["capacity"]) for rank in ranks) * 1.05
    height = top + len(ranks) * row + 4
    parts = []
    for position, rank in enumerate(ranks):
        memory, x, y = rank["memory"], left, top + position * row + 2.0
        parts.append(_text(0, y + 16, f"rank {rank['rank']}"))
        rest = memory["peak"] - sum(memory[name] for name, _, _ in MEMORY)
        for size, name, colour in (
            *((memory[key], name, colour) for key, name, colour in MEMORY),
            (rest, "lost in the allocator's segments", "#e2e8f0"),
        ):
            width = size / most * (_WIDTH - left)
            parts.append(
                _bar(x, y, width, thick, colour, f"{name}: {size / _GIB:.2f} GiB", f"{max(size, 0) / _GIB:.1f}")
            )
            x += max(width, 0)
    parts.append(
        _capacity_line(
            left + ranks[0]["memory"]["capacity"] / most * (_WIDTH - left), height, ranks[0]["memory"]["capacity"]
        )
    )
    return _svg(height, parts, "HBM at the peak")


def memory_curve(rank: dict[str, Any]) -> str:
    """HBM of one rank over its last step, as stacked areas, with the card's capacity as a line."""
    curve, memory = rank["memory_curve"], rank["memory"]
    height, left, right = 280.0, 60.0, _WIDTH - 10
    # Where little of HBM is used, what is used fills the picture.
    used = max(memory["peak"], 1)
    capacity = memory["capacity"] if memory["capacity"] < 3 * used else None
    top = max(capacity or 0, used) * 1.08
    span = max(curve[-1][0], 1e-9)
    levels = [_stack(memory, allocated, gradients) for _, allocated, gradients in curve]
    xs = [left + time / span * (right - left) for time, _, _ in curve]
    parts = []
    for gib in _ticks(top / _GIB):
        y = height - gib * _GIB / top * height
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, f"{gib:g}", "end"))
    below = [(x, height) for x in xs]
    for band, (_, name, colour) in enumerate(MEMORY):
        points = [(x, height - sums[band] / top * height) for x, sums in zip(xs, levels, strict=True)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in points + below[::-1])
        parts.append(f'<polygon points="{outline}" fill="{colour}"><title>{html.escape(name)}</title></polygon>')
        below = points
    if capacity is not None:
        line = height - capacity / top * height
        parts.append(f'<line class="capacity" x1="{left}" x2="{right}" y1="{line:.1f}" y2="{line:.1f}"/>')
        parts.append(_text(left + 6, line - 6, f"capacity {capacity / _GIB:.1f} GiB", kind="capacity"))
    parts += [_text(left, height + 18, "0"), _text(right, height + 18, duration(span / 1e6), "end")]
    return _svg(height + 26, parts, "HBM over the last step")


def _stack(memory: dict[str, Any], allocated: int, gradients: int) -> list[float]:
    """Upper ends of the bands of MEMORY, in bytes."""
    fixed = [memory["communication_and_context"], memory["parameters"], memory["optimizer"]]
    rest = max(0, allocated - fixed[1] - fixed[2])
    held = min(gradients, rest)
    sums, total = [], 0.0
    for part in (*fixed, held, rest - held):
        total += part
        sums.append(total)
    return sums


def _ticks(largest: float) -> list[float]:
    step = next(step for step in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 1e9) if largest / step <= 8)
    return [i * step for i in range(int(largest / step) + 1)]


def pipeline(turns: list[tuple[int, bool, int, int, float, float]]) -> str:
    """A row per stage: forward and backward of each micro-batch, numbered where there is room."""
    stages = 1 + max(turn[0] for turn in turns)
    left, row = 80.0, 26
    end = max(turn[5] for turn in turns)
    parts = [_text(0, stage * row + 18, f"stage {stage}") for stage in range(stages)]
    for stage, forward, chunk, batch, start, stop in turns:
        x, width = left + start / end * (_WIDTH - left), (stop - start) / end * (_WIDTH - left)
        shade = (0.55 if chunk % 2 else 1.0) if forward else (0.6 if chunk % 2 else 0.9)
        colour = f"rgba(37,99,235,{shade})" if forward else f"rgba(16,185,129,{shade})"
        title = f"micro-batch {batch}, {'forward' if forward else 'backward'}, chunk {chunk}: {duration(stop - start)}"
        parts.append(_bar(x, stage * row + 3.0, max(width - 0.6, 0.4), 20, colour, title, str(batch)))
    parts.append(_text(_WIDTH, stages * row + 16, duration(end), "end"))
    return _svg(stages * row + 22, parts, "the pipeline's turns")
