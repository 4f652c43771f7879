"""The report as one self-contained HTML page: no script is loaded, nothing is fetched."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from torch_cann.plan import charts
from torch_cann.plan.analysis import SPENT
from torch_cann.plan.report import duration

_GIB = 2**30
_STYLE = """
:root{--ink:#0f172a;--soft:#64748b;--line:#e2e8f0;--card:#fff;--page:#f8fafc;--bad:#dc2626;--good:#059669}
@media (prefers-color-scheme:dark){:root{--ink:#e2e8f0;--soft:#94a3b8;--line:#334155;--card:#1e293b;--page:#0f172a}}
body{font:15px/1.5 system-ui,sans-serif;margin:0;background:var(--page);color:var(--ink)}
main{max-width:1080px;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.35rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:0 0 .6rem}
header p,.soft{color:var(--soft);margin:.2rem 0}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1rem 1.2rem;margin-top:1rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:1rem;margin-top:1.2rem}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.8rem 1rem}
.tile b{display:block;font-size:1.55rem;line-height:1.3}.tile span,.tile small{color:var(--soft)}
.bad{color:var(--bad)}.good{color:var(--good)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:500}
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere}tr:last-child td{border-bottom:0}
.key{margin:.2rem 0 .6rem}.key span{margin-right:1.1rem;white-space:nowrap;color:var(--soft)}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg text.inside{fill:#fff}svg text.capacity{fill:var(--bad)}
svg .capacity{stroke:var(--bad);stroke-dasharray:6 4}svg text.capacity{stroke:none}svg .grid{stroke:var(--line)}
"""
_MEMORY_COLUMNS = (*(name for name, _, _ in charts.MEMORY), "peak", "capacity")


def _table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _tile(name: str, value: str, below: str = "", kind: str = "") -> str:
    return f'<div class="tile"><span>{name}</span><b class="{kind}">{html.escape(value)}</b><small>{html.escape(below)}</small></div>'


def _fits(rank: dict[str, Any]) -> bool:
    return rank["out_of_memory"] is None and rank["memory"]["peak"] <= rank["memory"]["capacity"]


def _tiles(report: dict[str, Any], fullest: dict[str, Any]) -> str:
    step, peak = report["step"], f"of {report['soc']['peak_fp16_tflops']:.1f} TFLOPS"
    tiles = [
        _tile("step", duration(step["seconds"]), f"80 % range {duration(step['low'])} to {duration(step['high'])}")
    ]
    if "tokens_per_second" in report:
        per_npu = f"{report['tokens_per_second_and_npu']:,.0f} per NPU"
        tiles.append(_tile("tokens/s", f"{report['tokens_per_second']:,.0f}", per_npu))
    if "model_flops_utilization" in report:
        tiles.append(_tile("MFU", f"{report['model_flops_utilization']:.1%}", peak))
    if "hardware_flops_utilization" in report:
        tiles.append(_tile("utilisation, recomputation included", f"{report['hardware_flops_utilization']:.1%}", peak))
    memory, fits = fullest["memory"], all(_fits(rank) for rank in report["ranks"])
    share = f"{memory['peak'] / _GIB:.1f} of {memory['capacity'] / _GIB:.1f} GiB on rank {fullest['rank']}"
    tiles.append(_tile("HBM", "fits" if fits else "does not fit", share, "good" if fits else "bad"))
    if report.get("turns") or report.get("pipeline"):
        tiles.append(_tile("pipeline bubble", f"{report['bubble']:.1%}", "of the step"))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _memory(report: dict[str, Any], fullest: dict[str, Any]) -> str:
    rows = [[str(r["rank"]), *(f"{r['memory'][n] / _GIB:.2f}" for n in _MEMORY_COLUMNS)] for r in report["ranks"]]
    header = ["rank, GiB", *(name.replace("_", " ") for name in _MEMORY_COLUMNS)]
    parts = [charts.key((name, colour) for _, name, colour in charts.MEMORY), charts.memory_bars(report["ranks"])]
    if fullest["memory_curve"]:
        parts += [f'<p class="soft">Rank {fullest["rank"]} over its last step:</p>', charts.memory_curve(fullest)]
    return _section("HBM", *parts, _table(header, rows))


def _operators(report: dict[str, Any]) -> list[str]:
    slowest = max(report["ranks"], key=lambda rank: rank["step_us"])
    sections = []
    if slowest["operators"]:
        total = slowest["step_us"] or 1.0
        rows = [
            [o["name"], o["engine"], duration(o["us"] / 1e6), f"{o['us'] / total:.1%}", str(o["calls"])]
            for o in slowest["operators"]
        ]
        header = ["operator", "engine", "device time", "of the step", "calls"]
        sections.append(_section(f"Top operators, rank {slowest['rank']}", _table(header, rows)))
    if slowest["sites"]:
        rows = [[s["site"], duration(s["us"] / 1e6)] for s in slowest["sites"]]
        sections.append(_section("Top lines", _table(["line", "device time"], rows)))
    return sections


def _honesty(report: dict[str, Any]) -> str:
    """What the figures rest on."""
    step, calibration = report["step"], report["calibration"]
    slowest = max(report["ranks"], key=lambda rank: rank["step_us"])
    missing = slowest["not_modelled"]
    parts = [
        f"<p>The model says {duration(step['uncalibrated_seconds'])}; times {calibration['factor']:g} is the estimate "
        f"({html.escape(calibration['source'])}).</p>",
        f"<p>{missing['share']:.1%} of device time is in operators that the cost model does not know by name and takes to be "
        f"bound by memory. {html.escape(', '.join(missing['operators']))}</p>",
        *(f"<p>{html.escape(note)}</p>" for note in report.get("notes", ())),
    ]
    if report.get("mirror"):
        parts.append(f"<p>{html.escape(report['mirror'])}</p>")
    if report["assumptions"]:
        rows = [[a["site"], a["what"], a["meaning"], str(a["times"])] for a in report["assumptions"][:100]]
        parts.append("<p>Values that only a device computes:</p>" + _table(["line", "what", "meaning", "times"], rows))
    return _section("What this rests on", *parts)


def page(report: dict[str, Any], title: str) -> str:
    """The whole page; ``report`` as analysis.summarize() and estimate.summarize() make it."""
    fullest = max(report["ranks"], key=lambda rank: rank["memory"]["peak"])
    ranks = ", ".join(str(rank["rank"]) for rank in report["ranks"])
    parts = [
        f"<header><h1>{html.escape(title)}</h1><p>{report['world_size']} x {html.escape(report['soc']['name'])}; "
        f"ranks run: {ranks}</p></header>",
        _tiles(report, fullest),
        _section(
            "Where the step goes" if not report.get("turns") else "Where a micro-batch goes",
            charts.key((SPENT[name], colour) for name, colour in charts.SPENT_COLOURS.items()),
            charts.breakdown(report["ranks"]),
        ),
    ]
    if report.get("turns"):
        colours = (("forward", "rgb(37,99,235)"), ("backward", "rgb(16,185,129)"))
        text = '<p class="soft">Enough micro-batches to fill and drain the pipeline, before calibration.</p>'
        parts.append(_section("Pipeline", text, charts.key(colours), charts.pipeline(report["turns"])))
    parts += [_memory(report, fullest), *_operators(report), _honesty(report)]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><main>{''.join(parts)}</main></html>"
    )


def write(report: dict[str, Any], title: str, path: Path) -> None:
    path.write_text(page(report, title))
