"""The report on a terminal, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch_cann.plan.analysis import SPENT

_GIB = 2**30


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def _header(report: dict[str, Any], title: str) -> list[str]:
    soc, step = report["soc"], report["step"]
    lines = [
        f"{title}",
        f"  {report['world_size']} x {soc['name']} ({soc['usable_hbm_bytes'] / _GIB:.1f} GiB usable, "
        f"{soc['peak_fp16_tflops']:.1f} TFLOPS fp16/bf16); ranks run: "
        + ", ".join(str(rank["rank"]) for rank in report["ranks"]),
        "",
        f"  step            {duration(step['seconds'])}   (80 % range {duration(step['low'])} to {duration(step['high'])}; "
        f"model {duration(step['uncalibrated_seconds'])} x {report['calibration']['factor']:g})",
    ]
    if "tokens_per_second" in report:
        lines.append(
            f"  throughput      {report['tokens_per_second']:,.0f} tokens/s, "
            f"{report['tokens_per_second_and_npu']:,.0f} per NPU"
        )
    if "hardware_flops_utilization" in report:
        lines.append(
            f"  utilisation     {report['hardware_flops_utilization']:.1%} of {soc['peak_fp16_tflops']:.1f} TFLOPS "
            "(all matrix operations issued, recomputation included)"
        )
    if "model_flops_utilization" in report:
        lines.append(
            f"  MFU             {report['model_flops_utilization']:.1%} of {soc['peak_fp16_tflops']:.1f} TFLOPS"
        )
    return lines


def _memory(report: dict[str, Any]) -> list[str]:
    lines = ["", "  HBM per card, GiB (at the peak)"]
    columns = ("parameters", "gradients", "optimizer", "activations", "communication_and_context")
    names = ("params", "grads", "optim", "activ.", "comm+ctx")
    lines.append("    rank  " + "".join(f"{name:>10}" for name in names) + "      peak   capacity")
    for rank in report["ranks"]:
        memory = rank["memory"]
        verdict = "fits" if rank["out_of_memory"] is None and memory["peak"] <= memory["capacity"] else "DOES NOT FIT"
        lines.append(
            f"    {rank['rank']:<6}"
            + "".join(f"{memory[name] / _GIB:>10.2f}" for name in columns)
            + f"{memory['peak'] / _GIB:>10.2f}{memory['capacity'] / _GIB:>10.2f}  {verdict}"
        )
    return lines


def _spent(report: dict[str, Any]) -> list[str]:
    lines = ["", "  Where the step goes, % of the compute stream's time"]
    for rank in report["ranks"]:
        total = rank["step_us"] or 1.0
        parts = [
            f"{text} {rank['spent_us'][name] / total:.1%}"
            for name, text in SPENT.items()
            if rank["spent_us"][name] > 0.0005 * total
        ]
        lines.append(f"    rank {rank['rank']}: " + ", ".join(parts))
    return lines


def _tables(report: dict[str, Any]) -> list[str]:
    slowest = max(report["ranks"], key=lambda rank: rank["step_us"])
    lines = ["", f"  Top operators of rank {slowest['rank']} (device time, calls)"]
    for row in slowest["operators"][:10]:
        lines.append(f"    {row['name']:<52.52}{row['engine']:<11}{duration(row['us'] / 1e6):>10}{row['calls']:>8}")
    lines += ["", "  Top lines"]
    for row in slowest["sites"][:8]:
        lines.append(f"    {row['site'][-70:]:<72}{duration(row['us'] / 1e6):>10}")
    missing = slowest["not_modelled"]
    lines += ["", f"  Not modelled by name (costed as bound by memory): {missing['share']:.1%} of device time"]
    if missing["operators"]:
        lines.append("    " + ", ".join(missing["operators"]))
    return lines


def _assumptions(report: dict[str, Any]) -> list[str]:
    if not report["assumptions"]:
        return []
    lines = ["", "  Assumed: values that only a device computes"]
    seen = set()
    for entry in report["assumptions"]:
        key = (entry["site"], entry["what"], entry["kind"])
        if key in seen:
            continue
        seen.add(key)
        lines.append(f"    {entry['site']}: {entry['what']} ({entry['meaning']}), {entry['times']} times")
    return lines[:22]


def text(report: dict[str, Any], title: str) -> str:
    lines = _header(report, title) + _memory(report) + _spent(report)
    if any(rank["operators"] for rank in report["ranks"]):
        lines += _tables(report)
    lines += _assumptions(report)
    lines += [f"  Note: {note}" for note in report.get("notes", ())]
    if report.get("mirror"):
        lines += ["", f"  {report['mirror']}"]
    return "\n".join(lines)


def write_json(report: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(report, indent=1))
