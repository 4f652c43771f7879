"""A published training run, as a row of data/published_runs.json says it, in the terms of `npu-plan estimate`.

Rows state what their scripts state; `model_of`, `layout_of` and `measured_seconds` are the only places that read them. What a
row does not say is taken from the framework's default, never from its name.
"""

from __future__ import annotations

import re
from typing import Any

from torch_cann.plan.layout import Layout, Model

# What Megatron's MFU counts against, in MindSpeed-LLM: the 910B family at 354 TFLOPS.
_MINDSPEED_PEAK = 354e12

Row = dict[str, Any]


def chip_of(row: Row) -> str:
    """The chip that the run's machine has; the 910B family where its bin is not stated."""
    named = re.search(r"A100|H100", row["device"])
    return named[0] if named else "Ascend910B2"


def set_of(row: Row) -> str:
    """Machine and framework; within one of these a single factor is meant to hold."""
    framework, chip = row["framework"], chip_of(row).removeprefix("Ascend").removesuffix("2")
    if framework.startswith(("MindSpeed", "ModelLink")):
        if "_pack_" in (row["source"].get("config") or ""):
            return f"MindSpeed-LLM, packed samples of unpublished length, {chip}"
        if "scaling" in row["id"]:
            return f"ModelLink GPT-3 scaling, {chip}"
        return f"MindSpeed-LLM MoE, {chip}" if row["model"].get("experts") else f"MindSpeed-LLM, {chip}"
    if "MindSpore" in framework:
        return f"MindFormers, {chip}"
    if framework.startswith("Megatron-LM"):
        # The paper of 2021, whose rows do not say their micro-batch, and the large run of its code.
        older = "v2" in framework or row["parallel"].get("sp") is None
        return f"Megatron-LM {'2021' if older and chip == 'A100' else '2022'}, {chip}"
    return f"{framework}, {chip}"


def _flags(row: Row) -> set[str]:
    return set(row.get("extra_flags") or ())


def _number(value: Any) -> int:
    """The first whole number in what a script was given; 0 if there is none."""
    found = re.search(r"\d+", str(value if value is not None else ""))
    return int(found[0]) if found else 0


def model_of(row: Row) -> Model:
    m, flags = row["model"], _flags(row)
    slots, idle = _idle_layers(row)
    latent = m.get("attention") == "MLA" or "multi-head-latent-attention" in flags
    expert_ffn = m.get("ffn_expert") or 0
    shared = m.get("ffn_shared") or 0
    if latent and m.get("experts") and not expert_ffn:
        expert_ffn = 1408  # DeepSeek-V2-Lite's public configuration
    if m.get("experts") and "n-shared-experts" in flags and not shared:
        shared = 2 * expert_ffn
    interleaved = any(flag.startswith("interleave-sliding-window") for flag in flags)
    return Model(
        layers=slots - len(idle),
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
        window=row.get("sliding_window") or (4096 if interleaved else 0),
        window_share=0.5 if interleaved else 1.0,
        latent_rank=512 if latent else 0,
        post_norms=2 if "post-norm" in flags else 0,
        qkv_bias="add-qkv-bias" in flags,
        logit_softcap="output-logit-softcapping" in flags,
    )


# ---- layers that do nothing, and layers that are computed again ------------------------------------------------------


def _idle_layers(row: Row) -> tuple[int, list[int]]:
    """(layers that the stages are cut from, which of them do nothing): MindSpeed's --noop-layers fill stages up."""
    given, layers = row.get("noop_layers"), row["model"]["layers"]
    if isinstance(given, int):  # how many, at the end
        return layers, list(range(layers - given, layers))
    idle = [int(n) for n in re.findall(r"\d+", str(given or ""))]
    # Numbers beyond the layers show that these were counted without the idle ones.
    return layers + (len(idle) if max(idle, default=0) >= layers else 0), idle


def _stage_layers(row: Row, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers of each stage where they are not equal; () where they are."""
    total, idle = _idle_layers(row)
    if row.get("pipeline_layer_list"):
        return tuple(row["pipeline_layer_list"])
    if idle:
        stages = [total // pp] * pp
        for number in idle:
            stages[number // max(1, total // (pp * vpp)) % pp] -= 1
        return tuple(stages)
    if total % (pp * vpp) == 0:
        return ()
    return tuple(total // pp + (stage < total % pp) for stage in range(pp))


def _recompute(row: Row, pp: int) -> tuple[str, tuple[int, ...]]:
    """(kind, layers of each stage that are computed again, where not all are)"""
    given = row.get("recompute") or ""
    if isinstance(given, dict):
        if given.get("recompute-granularity") != "full":
            return "none", ()
        block = given.get("recompute-method") == "block"
        return "full", (_number(given.get("recompute-num-layers")),) * pp if block else ()
    if "select" in given:
        return "selective", ()
    if block := re.search(r"(\d+) layers? per stage", given):
        return "full", (int(block[1]),) * pp
    if re.fullmatch(r"\[[\d, ]+\]", given):
        layers = tuple(int(n) for n in re.findall(r"\d+", given))
        return ("full", layers) if len(layers) == pp else ("none", ())
    return ("full" if "full" in given else "none"), ()


# ---- the layout ------------------------------------------------------------------------------------------------------


def _largest_pipeline(layers: int, groups: int) -> int:
    """For rows that do not say: the deepest pipeline of up to 16 equal stages."""
    return max(depth for depth in range(1, 17) if layers % depth == 0 and groups % depth == 0)


def _kernels(row: Row) -> dict[str, bool]:
    """Which kernels are fused; a row without flags is taken to use what its framework has."""
    flags, given = _flags(row), bool(_flags(row))
    # 2021 and 2022: before flash attention.
    old = row.get("flash_attn") is None and row["framework"].startswith("Megatron-LM") and chip_of(row) == "A100"
    return {
        "flash": row.get("flash_attn") is not False and not old,
        "fused_norm": not given or "use-fused-rmsnorm" in flags,
        "fused_rotary": not given or "use-fused-rotary-pos-emb" in flags,
        "fused_gated": not given or "use-fused-swiglu" in flags,
        "grouped_experts": not given or "moe-grouped-gemm" in flags,
        "fp16": row.get("dtype") == "fp16",
        "rotary": bool(row["model"]["glu"]),
        "dropout": old,
        "fused_softmax": old,
        "fused_gradients": old,
        # Published states of 18 bytes a parameter (arXiv 2205.05198, figure 1) have gradients in fp32.
        "fp32_gradients": bool((row.get("memory_gib") or {}).get("params_and_optimizer")),
    }


def layout_of(row: Row) -> Layout:
    p, flags = row["parallel"], _flags(row)
    overlap, tricks = set(p.get("overlap") or ()), row.get("memory_tricks") or {}
    text = row["recompute"] if isinstance(row.get("recompute"), str) else ""
    layers = _idle_layers(row)[0]
    tp, cp = p.get("tp") or 1, p.get("cp") or 1
    pp = p.get("pp") or _largest_pipeline(layers, row["npus"] // (tp * cp))
    dp = p.get("dp") or max(1, row["npus"] // (tp * pp * cp))
    chunk = p.get("layers_per_virtual_stage")
    vpp = 1 if pp == 1 else p.get("vpp_chunks") or (layers // pp // chunk if chunk else 1)
    micro = row.get("micro_batch") or 1
    recompute, recomputed = _recompute(row, pp)
    # MindSpore's parallel optimizer also shards gradients, except those that a pipeline adds up.
    shards_gradients = row["framework"].startswith("MindSpore") and pp == 1
    return Layout(
        sequence=row["seq"],
        micro_batch=micro,
        global_batch=row.get("global_batch") or dp * micro * max(8, 8 * pp),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=p.get("ep") or 1 if row["model"].get("experts") else 1,
        dp=dp,
        vpp=vpp,
        sequence_parallel=tp > 1 and p.get("sp") is not False,
        zero=2 if shards_gradients else 1 if p.get("zero1") else 0,
        reuse_master=bool(tricks.get("reuse_fp32_param")) or "reuse-fp32-param" in text,
        recompute=recompute,
        recomputed_layers=recomputed,
        recompute_activation="activation-function" in text,
        swap_attention=recompute == "full" and bool(tricks.get("swap_attention")),
        stage_layers=_stage_layers(row, pp, vpp),
        fused_collectives=bool(p.get("mc2")) and tp > 1,
        overlap_gradients="overlap-grad-reduce" in overlap,
        overlap_parameters="overlap-param-gather" in overlap,
        ulysses="ulysses" in (p.get("cp_algo") or "ulysses"),
        # Megatron's default is all_gather; rows without flags are taken to have the other.
        dispatcher="alltoall" if not flags or "moe-token-dispatcher-type" in flags else "allgather",
        **_kernels(row),
    )


# ---- what was measured -----------------------------------------------------------------------------------------------


def measured_seconds(row: Row, model: Model, layout: Layout) -> float | None:
    """The published step time, or what a published throughput or utilisation says it is; None if there is none."""
    measured, npus = row["measured"], row["npus"]
    tokens = layout.global_batch * layout.sequence
    # Attention counted in full, as MindSpeed-LLM's own figure does.
    flops = model.flops_per_token(layout.sequence) + 6 * layout.sequence * model.heads * model.head * model.layers
    for key in ("step_time_s", "step_time_s_derived"):
        if measured.get(key):
            return measured[key]
    if measured.get("tokens_per_s_per_npu"):
        return tokens / (measured["tokens_per_s_per_npu"] * npus)
    if measured.get("samples_per_s"):
        return layout.global_batch / measured["samples_per_s"]
    if measured.get("mfu"):
        return flops * tokens / (measured["mfu"] * _MINDSPEED_PEAK * npus)
    if measured.get("achieved_tflops_per_npu"):
        return flops * tokens / (measured["achieved_tflops_per_npu"] * 1e12 * npus)
    if measured.get("hw_tflops_per_gpu"):
        return 4 / 3 * _paper_flops(row) * layout.global_batch / (measured["hw_tflops_per_gpu"] * 1e12 * npus)
    return None


def _paper_flops(row: Row) -> float:
    """Model FLOPs of a sequence by equation 3 of arXiv 2104.04473, without its recomputation."""
    m, s = row["model"], row["seq"]
    layers, h = m["layers"], m["hidden"]
    return 72 * s * layers * h * h * (1 + s / (6 * h) + m["vocab"] / (12 * layers * h))
