"""Scores `npu-plan estimate` against published training runs: error of the step time per row, beside a naive predictor.

    python benchmarks/validation.py [--set ascend|a100|all] [--json FILE]

Each row runs the reference transformer program dry with the published configuration. One factor per set (machine and
framework) scales all its rows and is fitted leave-one-out: a row's factor comes from the others only. The naive
predictor answers the median utilisation of the other rows. Rows and their sources: data/published_runs.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_CHIPS = {"ascend": "Ascend910B2", "a100": "A100"}


def _prepare(chip_set: str) -> None:
    """Before torch is imported: a process is dry, and of one chip, from its start."""
    os.environ.update(
        TORCH_CANN_DRY_RUN="1",
        TORCH_CANN_DEVICE_COUNT="8",
        TORCH_CANN_HBM_MB=str(1 << 20),
        TORCH_CANN_SOC=_CHIPS[chip_set],
        TORCH_CANN_SOC_FILE=str(_HERE / "data" / "a100.toml"),
        OMP_NUM_THREADS="1",
    )


# ---- from a row to the program's arguments ---------------------------------------------------------------------------


def _model(row: dict[str, Any]) -> Any:
    from torch_cann.plan.layout import Model

    m = row["model"]
    flags = set(row.get("extra_flags") or [])
    latent = "multi-head-latent-attention" in flags
    expert_ffn = m.get("ffn_expert") or 0
    if latent and not expert_ffn:
        expert_ffn = 1408  # DeepSeek-V2-Lite's public configuration
    shared = m.get("ffn_shared") or 0
    if latent and not shared:
        shared = 2 * expert_ffn
    interleaved = any(flag.startswith("interleave-sliding-window") for flag in flags)
    window = row.get("sliding_window") or (4096 if interleaved else 0)
    return Model(
        layers=m["layers"],
        hidden=m["hidden"],
        heads=m.get("heads") or m["hidden"] // 128,
        kv_heads=m.get("kv_heads") or 0,
        head_dim=m.get("head_dim") or 0,
        ffn=m["ffn"],
        vocab=m["vocab"],
        gated=bool(m["glu"]),
        tied_embeddings=bool(m.get("tied_embeddings")),
        experts=m.get("experts") or 0,
        top_k=m.get("topk") or 0,
        expert_ffn=expert_ffn,
        shared_ffn=shared,
        dense_layers=1 if "first-k-dense-replace" in flags else 0,
        window=window,
        window_share=0.5 if interleaved else 1.0,
        latent_rank=512 if latent else 0,
        post_norms=2 if "post-norm" in flags else 0,
    )


def _recompute(row: dict[str, Any]) -> str:
    given = row.get("recompute")
    if isinstance(given, dict):
        return "full" if given.get("recompute-granularity") == "full" else "none"
    text = given or ""
    if "select" in text:
        return "selective"
    return "full" if "full" in text and "1 layer" not in text else "none"


def _largest_pipeline(layers: int, groups: int) -> int:
    """For rows that do not say: the deepest pipeline of up to 16 equal stages."""
    return max(depth for depth in range(1, 17) if layers % depth == 0 and groups % depth == 0)


def _layout(row: dict[str, Any]) -> Any:
    from torch_cann.plan.layout import Layout

    p = row["parallel"]
    # MindSpore's parallel optimizer also shards gradients, except those that a pipeline adds up.
    shards_gradients = row["framework"].startswith("MindSpore") and row["parallel"].get("pp") == 1
    text = row["recompute"] if isinstance(row.get("recompute"), str) else ""
    flags = set(row.get("extra_flags") or [])
    overlap = set(p.get("overlap") or [])
    tp, cp = p["tp"], p.get("cp") or 1
    pp = p["pp"] or _largest_pipeline(row["model"]["layers"], row["npus"] // tp)
    dp = p.get("dp") or max(1, row["npus"] // (tp * pp * cp))
    layers = row["model"]["layers"]
    chunk = p.get("layers_per_virtual_stage")
    stages = tuple(row.get("pipeline_layer_list") or ())
    old = row.get("flash_attn") is None and row["framework"].startswith(
        "Megatron-LM"
    )  # 2021 and 2022: before flash attention
    micro = row["micro_batch"] or 1
    return Layout(
        sequence=row["seq"],
        micro_batch=micro,
        global_batch=row["global_batch"] or dp * micro * max(8, 8 * pp),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=p.get("ep") or 1,
        dp=dp,
        vpp=p.get("vpp_chunks") or ((layers // pp) // chunk if chunk else 1),
        sequence_parallel=tp > 1 and p.get("sp") is not False,
        zero=2 if shards_gradients else 1 if p.get("zero1") else 0,
        reuse_master="reuse-fp32-param" in text,
        recompute_activation="activation-function" in text,
        recompute=_recompute(row),
        stage_layers=stages,
        fused_collectives=bool(p.get("mc2")) and tp > 1,
        overlap_gradients="overlap-grad-reduce" in overlap,
        overlap_parameters="overlap-param-gather" in overlap,
        ulysses="ulysses" in (p.get("cp_algo") or "ulysses"),
        flash=row.get("flash_attn") is not False and not old,
        fused_norm=not flags or "use-fused-rmsnorm" in flags,
        fused_rotary=not flags or "use-fused-rotary-pos-emb" in flags,
        fused_gated=not flags or "use-fused-swiglu" in flags,
        # Megatron's defaults are all_gather and one expert after another; rows without flags are taken to have both.
        dispatcher="alltoall" if not flags or "moe-token-dispatcher-type" in flags else "allgather",
        grouped_experts=not flags or "moe-grouped-gemm" in flags,
        fp16=row["dtype"] == "fp16",
        rotary=bool(row["model"]["glu"]),
        dropout=old,
        fused_softmax=old,
        fused_gradients=old,
    )


def _measured_seconds(row: dict[str, Any], model: Any, layout: Any) -> float | None:
    """The published step time, or what a published throughput or utilisation says it is."""
    measured = row["measured"]
    tokens = layout.global_batch * layout.sequence
    for key in ("step_time_s", "step_time_s_derived"):
        if key in measured:
            return measured[key]
    if "tokens_per_s_per_npu" in measured:
        return tokens / (measured["tokens_per_s_per_npu"] * row["npus"])
    if "mfu" in measured:
        # MindSpeed-LLM's denominator, and attention counted in full.
        flops = model.flops_per_token(layout.sequence) + 6 * layout.sequence * model.heads * model.head * model.layers
        return flops * tokens / (measured["mfu"] * 354e12 * row["npus"])
    if "hw_tflops_per_gpu" in measured:
        return 4 / 3 * _paper_flops(row) * layout.global_batch / (measured["hw_tflops_per_gpu"] * 1e12 * row["npus"])
    return None


def _paper_flops(row: dict[str, Any]) -> float:
    """Model FLOPs of a sequence by equation 3 of arXiv 2104.04473, without its recomputation."""
    m, s = row["model"], row["seq"]
    layers, h = m["layers"], m["hidden"]
    return 72 * s * layers * h * h * (1 + s / (6 * h) + m["vocab"] / (12 * layers * h))


# ---- scoring ---------------------------------------------------------------------------------------------------------


def set_of(row: dict[str, Any]) -> str:
    """Machine and framework; within one of these a single factor is meant to hold."""
    if "_pack_" in (row["source"].get("config") or ""):
        return "MindSpeed-LLM, packed samples of unpublished length, 910B"
    if row["id"].startswith("a100-megatron-2021") or row["id"] == "a100-gpt3-175b-1024":
        return "Megatron-LM 2021, A100"
    if row["framework"].startswith("Megatron-LM"):
        return "Megatron-LM 2022, A100"
    if "MindSpore" in row["framework"]:
        return "MindFormers, 910B"
    if row["id"].startswith("modellink-gpt3"):
        return "ModelLink GPT-3 scaling, 910B"
    return "MindSpeed-LLM MoE, 910B" if row["model"].get("experts") else "MindSpeed-LLM, 910B"


def _predict(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from torch_cann.plan import estimate
    from torch_cann.plan.errors import PlanError

    predictions = []
    for row in rows:
        entry: dict[str, Any] = {"id": row["id"], "set": set_of(row), "grade": row["grade"]}
        started = time.perf_counter()
        try:
            model, layout = _model(row), _layout(row)
            seconds, stages = estimate.run(model, layout)
            measured = _measured_seconds(row, model, layout)
            flops = model.flops_per_token(layout.sequence) * layout.global_batch * layout.sequence
            entry |= {
                "model_seconds": seconds,
                "measured_seconds": measured,
                "parameters": model.matmul_parameters,
                "flops_per_npu": flops / row["npus"],
                "peak_gib": max(stage.memory["peak"] for stage in stages.values()) / 2**30,
                "capacity_gib": next(iter(stages.values())).memory["capacity"] / 2**30,
            }
        except PlanError as error:
            entry["skipped"] = str(error)
        entry["tool_seconds"] = time.perf_counter() - started
        predictions.append(entry)
    return predictions


def _leave_one_out(values: list[float]) -> list[float]:
    """For each value the median of the others (itself, if alone)."""
    return [statistics.median(values[:i] + values[i + 1 :] or values) for i in range(len(values))]


def score(entries: list[dict[str, Any]]) -> None:
    """Adds factor, error and the naive predictor's error to the scored entries of one set."""
    logs = [math.log(e["measured_seconds"] / e["model_seconds"]) for e in entries]
    rates = [e["flops_per_npu"] / e["measured_seconds"] for e in entries]
    for entry, log, rate in zip(entries, _leave_one_out(logs), _leave_one_out(rates), strict=True):
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


def summary(entries: list[dict[str, Any]]) -> dict[str, float]:
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


def blind(entries: list[dict[str, Any]]) -> dict[str, float]:
    """A third of the rows, chosen by a hash of their names, predicted with the factor of the other two thirds."""
    held = sorted(entries, key=lambda e: hashlib.sha256(e["id"].encode()).digest())[: len(entries) // 3]
    others = [e for e in entries if e not in held]
    factor = statistics.median(e["measured_seconds"] / e["model_seconds"] for e in others)
    errors = [abs(e["model_seconds"] * factor / e["measured_seconds"] - 1) for e in held]
    return {"rows": len(held), "factor": factor, "mean": statistics.mean(errors), "most": max(errors)}


def _print(entries: list[dict[str, Any]]) -> None:
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


def _chip_set_of(row: dict[str, Any]) -> str:
    return "a100" if re.match("a100-", row["id"]) else "ascend"


def _worker(chip_set: str) -> None:
    _prepare(chip_set)
    import torch  # noqa: F401  (loads the device)
    import torch_npu  # noqa: F401

    rows = json.loads((_HERE / "data" / "published_runs.json").read_text())["cases"]
    print(json.dumps(_predict([row for row in rows if _chip_set_of(row) == chip_set])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=[*_CHIPS, "all"], default="all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=list(_CHIPS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _worker(arguments.worker)
    everything: list[dict[str, Any]] = []
    for chip_set in _CHIPS if arguments.set == "all" else [arguments.set]:
        done = subprocess.run([sys.executable, __file__, "--worker", chip_set], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the {chip_set} rows failed:\n{done.stderr}")
        everything += json.loads(done.stdout.splitlines()[-1])
    summaries = {}
    for name in dict.fromkeys(e["set"] for e in everything):
        entries = [e for e in everything if e["set"] == name]
        scored = [e for e in entries if e.get("measured_seconds")]
        if scored:
            score(scored)
            summaries[name] = summary(scored)
        print(f"\n== {name}")
        _print(entries)
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
    everyone = [e for e in everything if e["set"].startswith("MindSpeed-LLM") and "packed" not in e["set"]]
    if any(e["set"].endswith("MoE, 910B") for e in everyone):
        dense = [e for e in everyone if "MoE" not in e["set"]]
        routed = [e for e in everyone if "MoE" in e["set"]]
        factor = statistics.median(e["measured_seconds"] / e["model_seconds"] for e in dense)
        errors = [abs(e["model_seconds"] * factor / e["measured_seconds"] - 1) for e in routed]
        print(f"\nMindSpeed-LLM MoE with the dense rows' factor {factor:.3f}: error mean {statistics.mean(errors):.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": everything, "sets": summaries}, indent=1))


if __name__ == "__main__":
    main()
