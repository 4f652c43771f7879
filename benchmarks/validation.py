"""Scores `npu-plan estimate` against published training runs: error of the step time per row, beside a naive predictor.

    python benchmarks/validation.py [--set ascend|a100|all] [--rows FILE] [--json FILE]

Each row runs the reference transformer program dry with the published configuration. One factor per set (machine and
framework) scales all its rows and is fitted leave-one-out: a row's factor comes from the others only. The naive
predictor answers the median utilisation of the other rows. Rows and their sources: data/published_runs.json; other rows
of that form: --rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ROWS = _HERE / "data" / "published_runs.json"

Entry = dict[str, Any]


# ---- running rows dry ------------------------------------------------------------------------------------------------


def _prepare(chip: str) -> None:
    """Before torch is imported: a process is dry, and of one chip, from its start."""
    os.environ.update(
        TORCH_CANN_DRY_RUN="1",
        TORCH_CANN_DEVICE_COUNT="8",
        TORCH_CANN_HBM_MB=str(1 << 20),
        TORCH_CANN_SOC=chip,
        TORCH_CANN_SOC_FILE=str(_HERE / "data" / "gpus.toml"),
        OMP_NUM_THREADS="1",
    )


def _predict(row: dict[str, Any]) -> Entry:
    import published_memory
    import published_rows

    from torch_cann.plan import estimate, stragglers
    from torch_cann.plan.errors import PlanError

    entry: Entry = {"id": row["id"], "set": published_rows.set_of(row), "grade": row.get("grade")}
    started = time.perf_counter()
    try:
        model, layout = published_rows.model_of(row), published_rows.layout_of(row)
        seconds, stages = estimate.run(model, layout)
        flops = model.flops_per_token(layout.sequence) * layout.global_batch * layout.sequence
        entry |= {
            "model_seconds": seconds,
            "measured_seconds": published_rows.measured_seconds(row, model, layout),
            "parameters": model.matmul_parameters,
            "experts": bool(model.experts),
            "npus": layout.world,
            "flops_per_npu": flops / layout.world,
            "gradient_seconds": max(stage.gradients for stage in stages.values()),
            "slowdown": stragglers.slowdown(layout.world),
            "peak_gib": max(stage.memory["peak"] for stage in stages.values()) / 2**30,
            "capacity_gib": next(iter(stages.values())).memory["capacity"] / 2**30,
        }
        if published := row.get("memory_gib"):
            counted = published_memory.layer_memory(model, layout)
            entry["memory_gib"] = {name: [published[name], counted[name]] for name in counted if name in published}
        if row.get("grade") == "X":
            entry["skipped"] = "its figures contradict each other"
    except PlanError as error:
        entry["skipped"] = str(error)
    entry["tool_seconds"] = time.perf_counter() - started
    return entry


def _rows_of(path: Path) -> list[dict[str, Any]]:
    given = json.loads(path.read_text())
    return given["cases"] if isinstance(given, dict) else given


def _worker(chip: str, path: Path) -> None:
    _prepare(chip)
    import torch  # noqa: F401  (loads the device)
    import torch_npu  # noqa: F401
    from published_rows import chip_of

    print(json.dumps([_predict(row) for row in _rows_of(path) if chip_of(row) == chip]))


def _run(chips: list[str], path: Path) -> list[Entry]:
    entries: list[Entry] = []
    for chip in chips:
        command = [sys.executable, __file__, "--worker", chip, "--rows", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the rows of {chip} failed:\n{done.stderr}")
        entries += json.loads(done.stdout.splitlines()[-1])
    return entries


# ---- scoring ---------------------------------------------------------------------------------------------------------


def _leave_one_out(values: list[float], alone: float) -> list[float]:
    """For each value the median of the others; ``alone`` for a single one."""
    return [statistics.median(values[:i] + values[i + 1 :] or [alone]) for i in range(len(values))]


def score(entries: list[Entry], default: float) -> None:
    """Adds factor, error and the naive predictor's error to the entries of one set; ``default`` is a lone row's factor."""
    logs = [math.log(e["measured_seconds"] / e["model_seconds"]) for e in entries]
    rates = [e["flops_per_npu"] / e["measured_seconds"] for e in entries]
    factors, others = _leave_one_out(logs, math.log(default)), _leave_one_out(rates, rates[0])
    for entry, log, rate in zip(entries, factors, others, strict=True):
        entry["factor"] = math.exp(log)
        entry["predicted_seconds"] = entry["model_seconds"] * entry["factor"]
        entry["error"] = entry["predicted_seconds"] / entry["measured_seconds"] - 1
        entry["naive_error"] = entry["flops_per_npu"] / rate / entry["measured_seconds"] - 1


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (position - low)


def _rank_correlation(a: list[float], b: list[float]) -> float:
    def ranks(values: list[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        result = [0.0] * len(values)
        for rank, position in enumerate(order):
            result[position] = rank
        return result

    return statistics.correlation(ranks(a), ranks(b))


def summary(entries: list[Entry]) -> dict[str, float]:
    errors = [abs(e["error"]) for e in entries]
    naive = [abs(e["naive_error"]) for e in entries]
    result = {
        "rows": len(entries),
        "factor": statistics.median(e["measured_seconds"] / e["model_seconds"] for e in entries),
        "mean": statistics.mean(errors),
        "median": statistics.median(errors),
        "p90": _quantile(errors, 0.9),
        "naive_mean": statistics.mean(naive),
        "naive_median": statistics.median(naive),
    }
    if len(entries) > 2:
        result["mfu_rank_correlation"] = _rank_correlation(
            [e["flops_per_npu"] / e["predicted_seconds"] for e in entries],
            [e["flops_per_npu"] / e["measured_seconds"] for e in entries],
        )
    return result


def blind(entries: list[Entry]) -> dict[str, float]:
    """A third of the rows, chosen by a hash of their names, predicted with the factor of the other two thirds."""
    held = sorted(entries, key=lambda e: hashlib.sha256(e["id"].encode()).digest())[: len(entries) // 3]
    others = [e for e in entries if e not in held]
    factor = statistics.median(e["measured_seconds"] / e["model_seconds"] for e in others)
    errors = [abs(e["model_seconds"] * factor / e["measured_seconds"] - 1) for e in held]
    return {"rows": len(held), "factor": factor, "mean": statistics.mean(errors), "most": max(errors)}


def _within(ratios: list[float], spread: float) -> str:
    """How often measured times fall into the range that is claimed for 80 % of them."""
    hits = sum(1 - spread <= ratio <= 1 + spread for ratio in ratios)
    return f"+-{spread:.0%} holds {hits} of {len(ratios)} ({hits / len(ratios):.0%})"


def coverage(scored: list[Entry]) -> Iterator[str]:
    """Whether the ranges of the reports, which claim 80 %, hold as many of the published runs of NPUs."""
    from torch_cann.plan import calibration

    npus = [e for e in scored if e["set"].endswith("910B") and "packed" not in e["set"]]
    for label, mixture in (("dense", False), ("mixtures", True)):
        chosen = [e for e in npus if e["experts"] == mixture]
        if not chosen:
            continue
        general, own = calibration.given(None, mixture), calibration.given(1.0, mixture)
        default = [e["measured_seconds"] / (e["model_seconds"] * general.factor) for e in chosen]
        fitted = [e["measured_seconds"] / e["predicted_seconds"] for e in chosen]
        yield (
            f"   {label}: with the default factor {general.factor:g} {_within(default, general.spread)}; "
            f"with the factor of the set's other rows {_within(fitted, own.spread)}"
        )


def weak_scaling(entries: list[Entry]) -> Iterator[str]:
    """What a growing number of NPUs at constant work each costs, and by which terms of the model."""
    first = min(entries, key=lambda e: e["npus"])
    for e in entries:
        if e is first:
            continue
        measured, modelled = (
            1 - e["flops_per_npu"] / e[time] / (first["flops_per_npu"] / first[time])
            for time in ("measured_seconds", "model_seconds")
        )
        alone = e["model_seconds"] / e["slowdown"]
        yield (
            f"   from {first['npus']} to {e['npus']} NPUs {measured:.1%} of the utilisation is lost, {modelled:.1%} by the model: "
            f"gradients between servers {e['gradient_seconds'] / alone:.1%}, the slowest of more cards "
            f"{1 - first['slowdown'] / e['slowdown']:.1%}, the rest layout"
        )


# ---- printing --------------------------------------------------------------------------------------------------------


def _print_rows(entries: list[Entry]) -> None:
    print(
        f"{'row':<46}{'measured s':>11}{'model s':>10}{'factor':>8}{'error':>8}{'naive':>8}{'peak GiB':>10}{'tool s':>8}"
    )
    for e in entries:
        if "error" not in e:
            print(f"{e['id']:<46} not scored: {e.get('skipped', 'nothing measured')}")
            continue
        fits = "" if e["peak_gib"] <= e["capacity_gib"] else "  OVER CAPACITY"
        print(
            f"{e['id']:<46}{e['measured_seconds']:>11.3f}{e['model_seconds']:>10.3f}{e['factor']:>8.3f}"
            f"{e['error']:>+8.1%}{e['naive_error']:>+8.1%}{e['peak_gib']:>10.1f}{e['tool_seconds']:>8.2f}{fits}"
        )


def _print_summaries(scored: list[Entry]) -> None:
    big = [e for e in scored if e["parameters"] >= 6e9]
    for label, chosen in (("all", scored), ("6B and more", big)):
        if len(chosen) > 1:
            s = summary(chosen)
            print(
                f"   {label}: {s['rows']} rows, factor {s['factor']:.3f}, error mean {s['mean']:.1%} median {s['median']:.1%} "
                f"p90 {s['p90']:.1%}; naive mean {s['naive_mean']:.1%} median {s['naive_median']:.1%}; "
                f"MFU rank correlation {s.get('mfu_rank_correlation', float('nan')):.3f}"
            )
    if len(scored) >= 6:
        b = blind(scored)
        print(
            f"   blind third: {b['rows']} rows with the factor {b['factor']:.3f} of the others, error mean {b['mean']:.1%}, "
            f"most {b['most']:.1%}"
        )


def _print_memory(entries: list[Entry]) -> None:
    """Published against counted memory, once a model."""
    seen = set()
    for e in entries:
        figures = e.get("memory_gib", {})
        if (key := tuple(map(tuple, figures.values()))) in seen or not figures:
            continue
        seen.add(key)
        parts = (f"{name} {published:.2f}, counted {counted:.2f}" for name, (published, counted) in figures.items())
        print(f"   memory in GiB of {e['id']}: " + "; ".join(parts))


def _print_together(scored: list[Entry]) -> None:
    npus = [e for e in scored if e["set"].startswith("MindSpeed-LLM") and "packed" not in e["set"]]
    dense, routed = ([e for e in npus if e["experts"] == mixture] for mixture in (False, True))
    if dense and routed:
        factor = statistics.median(e["measured_seconds"] / e["model_seconds"] for e in dense)
        errors = [abs(e["model_seconds"] * factor / e["measured_seconds"] - 1) for e in routed]
        print(f"\nMindSpeed-LLM MoE with the dense rows' factor {factor:.3f}: error mean {statistics.mean(errors):.1%}")
    if lines := list(coverage(scored)):
        print("\nRanges that claim to hold 80 % of the measured times")
        print("\n".join(lines))
    over = [e["id"] for e in scored if e["peak_gib"] > e["capacity_gib"]]
    print(
        f"\n{len(over)} of {len(scored)} rows, all of which ran, are said not to fit{': ' if over else ''}{', '.join(over)}"
    )


def main() -> None:
    chips = {"ascend": ["Ascend910B2"], "a100": ["A100"], "all": ["Ascend910B2", "A100", "H100"]}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=list(chips), default="all")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="rows in the form of data/published_runs.json")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _worker(arguments.worker, arguments.rows)
    from torch_cann.plan import calibration

    everything = _run(chips[arguments.set], arguments.rows)
    summaries, all_scored = {}, []
    for name in dict.fromkeys(e["set"] for e in everything):
        entries = [e for e in everything if e["set"] == name]
        scored = [e for e in entries if e.get("measured_seconds") and "skipped" not in e]
        if scored:
            score(scored, calibration.given(None).factor)
            summaries[name] = summary(scored)
        all_scored += scored
        print(f"\n== {name}")
        _print_rows(entries)
        _print_summaries(scored)
        _print_memory(entries)
        if "scaling" in name:
            print("\n".join(weak_scaling(scored)))
    _print_together(all_scored)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": everything, "sets": summaries}, indent=1))


if __name__ == "__main__":
    main()
