"""The report as one self-contained HTML page: no script is loaded, nothing is fetched."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from torch_cann.plan.analysis import SPENT
from torch_cann.plan.report import duration

_GIB = 2**30
_BANDS = (  # from the bottom: name, colour
    ("communication and context", "#8d99ae"),
    ("parameters", "#2b6cb0"),
    ("optimizer", "#805ad5"),
    ("gradients", "#d69e2e"),
    ("activations and temporaries", "#38a169"),
)
_SPENT_COLOURS = ("#2b6cb0", "#38a169", "#718096", "#e53e3e", "#ed8936", "#d69e2e", "#cbd5e0")
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1000px;padding:0 1rem;color:#1a202c}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #e2e8f0}td:first-child,th:first-child{text-align:left}
.big{font-size:1.6rem;font-weight:600}.bad{color:#c53030;font-weight:600}.key span{margin-right:1.2rem}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}code{font-size:.9em}svg{width:100%;height:auto}
"""


def _area(points: list[tuple[float, float]], below: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points + below[::-1])
    return f'<polygon points="{path}" fill="{colour}"/>'


def memory_chart(rank: dict[str, Any]) -> str:
    """HBM of one rank over its last step, as stacked areas, with the card's capacity as a line."""
    curve, memory = rank["memory_curve"], rank["memory"]
    if not curve:
        return "<p>No memory was used on the device.</p>"
    width, height, left = 940.0, 260.0, 50.0
    top = max(memory["capacity"], memory["peak"]) * 1.05
    span = max(curve[-1][0], 1e-9)

    def y(size: float) -> float:
        return height - size / top * height

    levels: list[list[float]] = []
    for _, allocated, gradients in curve:
        fixed = [memory["communication_and_context"], memory["parameters"], memory["optimizer"]]
        held = min(gradients, max(0, allocated - fixed[1] - fixed[2]))
        rest = max(0, allocated - fixed[1] - fixed[2] - held)
        sums, total = [], 0.0
        for part in (*fixed, held, rest):
            total += part
            sums.append(total)
        levels.append(sums)
    xs = [left + time / span * width for time, _, _ in curve]
    below = [(x, height) for x in xs]
    areas = []
    for band, (_, colour) in enumerate(_BANDS):
        points = [(x, y(sums[band])) for x, sums in zip(xs, levels, strict=True)]
        areas.append(_area(points, below, colour))
        below = points
    line = y(memory["capacity"])
    ticks = "".join(
        f'<text x="{left - 6}" y="{y(top * share) + 4:.0f}" font-size="11" text-anchor="end">{top * share / _GIB:.0f}</text>'
        for share in (0, 0.25, 0.5, 0.75, 0.95)
    )
    return (
        f'<svg viewBox="0 0 {width + left + 10:.0f} {height + 24:.0f}" role="img" aria-label="HBM over the last step">'
        + "".join(areas)
        + ticks
        + f'<line x1="{left}" x2="{left + width}" y1="{line:.1f}" y2="{line:.1f}" stroke="#c53030" stroke-dasharray="6 4"/>'
        + f'<text x="{left + 6}" y="{line - 4:.1f}" font-size="11" fill="#c53030">capacity, GiB {memory["capacity"] / _GIB:.2f}</text>'
        + f'<text x="{left}" y="{height + 18:.0f}" font-size="11">0</text>'
        + f'<text x="{left + width}" y="{height + 18:.0f}" font-size="11" text-anchor="end">{duration(span / 1e6)}</text></svg>'
    )


def _key(entries: Any) -> str:
    return '<p class="key">' + "".join(f'<span><i style="background:{c}"></i>{n}</span>' for n, c in entries) + "</p>"


def breakdown_chart(ranks: list[dict[str, Any]]) -> str:
    """A bar per rank: what its compute stream did or waited for."""
    rows, step = [], 20
    longest = max((rank["step_us"] for rank in ranks), default=1) or 1
    for position, rank in enumerate(ranks):
        x = 70.0
        rows.append(f'<text x="0" y="{position * step + 14}" font-size="12">rank {rank["rank"]}</text>')
        for name, colour in zip(SPENT, _SPENT_COLOURS, strict=True):
            width = rank["spent_us"][name] / longest * 900
            title = f"{SPENT[name]}: {duration(rank['spent_us'][name] / 1e6)}"
            rows.append(
                f'<rect x="{x:.1f}" y="{position * step + 2}" width="{max(width, 0):.1f}" height="15" fill="{colour}">'
                f"<title>{title}</title></rect>"
            )
            x += width
    return f'<svg viewBox="0 0 980 {len(ranks) * step + 4}">' + "".join(rows) + "</svg>"


def _table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def page(report: dict[str, Any], title: str) -> str:
    step, soc = report["step"], report["soc"]
    slowest = max(report["ranks"], key=lambda rank: rank["step_us"])
    fullest = max(report["ranks"], key=lambda rank: rank["memory"]["peak"])
    fits = all(r["out_of_memory"] is None and r["memory"]["peak"] <= r["memory"]["capacity"] for r in report["ranks"])
    tokens = f" &middot; {report['tokens_per_second']:,.0f} tokens/s" if "tokens_per_second" in report else ""
    utilisation = (
        f"Utilisation, recomputation included, {report['hardware_flops_utilization']:.1%}"
        if "hardware_flops_utilization" in report
        else f"MFU {report['model_flops_utilization']:.1%}"
    )
    memory_names = (
        "parameters",
        "gradients",
        "optimizer",
        "activations",
        "communication_and_context",
        "peak",
        "capacity",
    )
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{report['world_size']} x {html.escape(soc['name'])}</p>",
        f'<p class="big">{duration(step["seconds"])} a step{tokens}</p>',
        f"<p>80 % range {duration(step['low'])} to {duration(step['high'])}: the model's {duration(step['uncalibrated_seconds'])}"
        f" times {report['calibration']['factor']:g} ({html.escape(report['calibration']['source'])}). "
        f"{utilisation} of {soc['peak_fp16_tflops']:.1f} TFLOPS. {'Fits in HBM.' if fits else '<span class=bad>Does not fit in HBM.</span>'}</p>",
        "<h2>Where the step goes</h2>",
        _key(zip(SPENT.values(), _SPENT_COLOURS, strict=True)),
        breakdown_chart(report["ranks"]),
        f"<h2>HBM over the last step, rank {fullest['rank']}</h2>",
        _key(_BANDS),
        memory_chart(fullest),
        _table(
            ["rank", *(name.replace("_", " ") for name in memory_names)],
            [[str(r["rank"]), *(f"{r['memory'][n] / _GIB:.2f} GiB" for n in memory_names)] for r in report["ranks"]],
        ),
        f"<h2>Top operators, rank {slowest['rank']}</h2>",
        _table(
            ["operator", "engine", "device time", "calls"],
            [[o["name"], o["engine"], duration(o["us"] / 1e6), str(o["calls"])] for o in slowest["operators"]],
        ),
        "<h2>Top lines</h2>",
        _table(["line", "device time"], [[s["site"], duration(s["us"] / 1e6)] for s in slowest["sites"]]),
        f"<h2>Not modelled</h2><p>{slowest['not_modelled']['share']:.1%} of device time is in operators that the cost model "
        f"does not know by name and takes to be bound by memory. {html.escape(', '.join(slowest['not_modelled']['operators']))}</p>",
        "<h2>Assumed</h2>",
        _table(
            ["line", "what", "meaning", "times"],
            [[a["site"], a["what"], a["meaning"], str(a["times"])] for a in report["assumptions"][:100]],
        ),
    ]
    return f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>" + "".join(
        parts
    )


def write(report: dict[str, Any], title: str, path: Path) -> None:
    path.write_text(page(report, title))
