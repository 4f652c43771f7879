"""The options of `estimate`, `search` and `explain` that describe a model and a layout, on the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from torch_cann.plan.errors import PlanError
from torch_cann.plan.layout import Layout, Model

# Published configurations.
MODELS = {
    "llama2-7b": Model(layers=32, hidden=4096, heads=32, vocab=32000, ffn=11008),
    "llama2-13b": Model(layers=40, hidden=5120, heads=40, vocab=32000, ffn=13824),
    "llama2-70b": Model(layers=80, hidden=8192, heads=64, kv_heads=8, vocab=32000, ffn=28672),
    "llama3-8b": Model(layers=32, hidden=4096, heads=32, kv_heads=8, vocab=128256, ffn=14336),
    "qwen2-7b": Model(layers=28, hidden=3584, heads=28, kv_heads=4, vocab=152064, ffn=18944),
    "gpt3-175b": Model(layers=96, hidden=12288, heads=96, vocab=51200, ffn=49152, gated=False),
    "mixtral-8x7b": Model(layers=32, hidden=4096, heads=32, kv_heads=8, vocab=32000, ffn=14336, experts=8, top_k=2),
}

_MODEL_OPTIONS = {
    "layers": "decoder layers",
    "hidden": "model width",
    "heads": "attention heads",
    "kv-heads": "key-value heads, if fewer",
    "ffn": "width of the feedforward part (of one matrix if gated)",
    "vocab": "vocabulary",
    "experts": "experts per layer",
    "top-k": "experts per token",
    "expert-ffn": "width of an expert, if not --ffn",
}
_LAYOUT_NUMBERS = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "vpp": 1, "micro-batch": 1}


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=sorted(MODELS), help="a published model; single sizes may be changed")
    parser.add_argument("--config", type=Path, help="a Hugging Face config.json")
    for name, text in _MODEL_OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, help=text)
    parser.add_argument("--no-gated", action="store_true", help="a feedforward part of two matrices (GELU)")


def add_layout(parser: argparse.ArgumentParser, *, fixed: bool) -> None:
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=128, help="sequences per step")
    parser.add_argument(
        "--zero", type=int, choices=(0, 1), default=1, help="1: optimizer states over the data-parallel ranks"
    )
    parser.add_argument(
        "--no-fused-collectives", action="store_true", help="without MC2 (products fused with collectives)"
    )
    parser.add_argument("--no-overlap", action="store_true", help="data-parallel communication after the backward pass")
    parser.add_argument("--no-sequence-parallel", action="store_true")
    if not fixed:
        return
    for name, default in _LAYOUT_NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--npus", type=int, help="all NPUs; dp follows")
    parser.add_argument("--dp", type=int, help="data-parallel ranks; --npus follows")
    parser.add_argument("--recompute", choices=("none", "full"), default="none")
    parser.add_argument("--stage-layers", help="layers of each stage, for example 20,20,21,19")


def _from_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot read the configuration {path}: {error}") from error
    keys = {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "ffn": "intermediate_size",
        "vocab": "vocab_size",
        "head_dim": "head_dim",
        "experts": "num_local_experts",
        "top_k": "num_experts_per_tok",
        "expert_ffn": "moe_intermediate_size",
    }
    found = {name: config[key] for name, key in keys.items() if config.get(key)}
    found["tied_embeddings"] = bool(config.get("tie_word_embeddings", False))
    return found


def model_of(arguments: argparse.Namespace) -> Model:
    """Raises PlanError naming what is missing."""
    fields: dict[str, Any] = dict(vars(MODELS[arguments.model])) if arguments.model else {}
    if arguments.config:
        fields |= _from_config(arguments.config)
    for name in _MODEL_OPTIONS:
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None:
            if value < 1:
                raise PlanError(f"--{name} must be at least 1, but is {value}")
            fields[name.replace("-", "_")] = value
    if arguments.no_gated:
        fields["gated"] = False
    missing = [f"--{name}" for name in ("layers", "hidden", "heads", "ffn", "vocab") if name not in fields]
    if missing:
        raise PlanError(f"the model lacks {', '.join(missing)}; give them, or --model, or --config")
    if "head_dim" not in fields and fields["hidden"] % fields["heads"]:
        raise PlanError(f"{fields['heads']} heads do not divide the width {fields['hidden']}")
    return Model(**fields)


def layout_of(arguments: argparse.Namespace) -> Layout:
    numbers = {name.replace("-", "_"): getattr(arguments, name.replace("-", "_"), 1) for name in _LAYOUT_NUMBERS}
    group = numbers["tp"] * numbers["pp"] * numbers["cp"]
    if group < 1:
        raise PlanError("tp, pp and cp must be at least 1")
    npus, dp = getattr(arguments, "npus", None), getattr(arguments, "dp", None)
    if npus and npus % group:
        raise PlanError(
            f"tp {numbers['tp']} * pp {numbers['pp']} * cp {numbers['cp']} = {group} does not divide {npus} NPUs"
        )
    if npus and dp and npus != group * dp:
        raise PlanError(f"tp * pp * cp * dp = {group * dp}, but --npus is {npus}")
    stages = getattr(arguments, "stage_layers", None)
    return Layout(
        sequence=arguments.sequence,
        global_batch=arguments.global_batch,
        dp=dp or (npus // group if npus else 1),
        zero=arguments.zero,
        fused_collectives=not arguments.no_fused_collectives and numbers["tp"] > 1,
        overlap_gradients=not arguments.no_overlap,
        overlap_parameters=not arguments.no_overlap,
        sequence_parallel=not arguments.no_sequence_parallel,
        recompute=getattr(arguments, "recompute", "none"),
        stage_layers=tuple(int(part) for part in stages.split(",")) if stages else (),
        **numbers,
    )
