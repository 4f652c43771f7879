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
    "gpt2": Model(layers=12, hidden=768, heads=12, vocab=50257, ffn=3072, gated=False, tied_embeddings=True),
    "gpt3-175b": Model(layers=96, hidden=12288, heads=96, vocab=51200, ffn=49152, gated=False),
    "llama2-7b": Model(layers=32, hidden=4096, heads=32, vocab=32000, ffn=11008),
    "llama2-13b": Model(layers=40, hidden=5120, heads=40, vocab=32000, ffn=13824),
    "llama2-70b": Model(layers=80, hidden=8192, heads=64, kv_heads=8, vocab=32000, ffn=28672),
    "llama3-8b": Model(layers=32, hidden=4096, heads=32, kv_heads=8, vocab=128256, ffn=14336),
    "llama3-70b": Model(layers=80, hidden=8192, heads=64, kv_heads=8, vocab=128256, ffn=28672),
    "llama3.1-405b": Model(layers=126, hidden=16384, heads=128, kv_heads=8, vocab=128256, ffn=53248),
    "qwen2-7b": Model(layers=28, hidden=3584, heads=28, kv_heads=4, vocab=152064, ffn=18944),
    "qwen2.5-72b": Model(layers=80, hidden=8192, heads=64, kv_heads=8, vocab=152064, ffn=29568),
    "mixtral-8x7b": Model(layers=32, hidden=4096, heads=32, kv_heads=8, vocab=32000, ffn=14336, experts=8, top_k=2),
    "deepseek-v2-lite": Model(
        layers=27, hidden=2048, heads=16, head_dim=128, vocab=102400, ffn=10944, experts=64, top_k=6, expert_ffn=1408,
        shared_ffn=2816, dense_layers=1, latent_rank=512,
    ),
    "deepseek-v3": Model(
        layers=61, hidden=7168, heads=128, head_dim=128, vocab=129280, ffn=18432, experts=256, top_k=8, expert_ffn=2048,
        shared_ffn=2048, dense_layers=3, latent_rank=512, query_rank=1536,
    ),
}  # fmt: skip

_MODEL_OPTIONS = {
    "layers": "decoder layers",
    "hidden": "model width",
    "heads": "attention heads",
    "kv-heads": "key-value heads, if fewer",
    "head-dim": "width of a head, if not hidden / heads",
    "ffn": "width of the feedforward part (of one matrix if gated)",
    "vocab": "vocabulary",
    "window": "tokens that attention looks back, if not all",
    "experts": "experts per layer",
    "top-k": "experts per token",
    "expert-ffn": "width of an expert, if not --ffn",
    "shared-ffn": "width of all shared experts together",
    "dense-layers": "leading layers without experts",
    "latent-rank": "width of latent attention's keys and values, if it has that",
}
_LAYOUT_NUMBERS = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "vpp": 1, "micro-batch": 1}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas, but got {text!r}") from None


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=sorted(MODELS), help="a published model; single sizes may be changed")
    parser.add_argument("--config", type=Path, help="a Hugging Face config.json")
    for name, text in _MODEL_OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, help=text)
    parser.add_argument("--no-gated", action="store_true", help="a feedforward part of two matrices (GELU)")
    parser.add_argument("--tied-embeddings", action="store_true", help="the head's weight is the embedding's")


def add_layout(parser: argparse.ArgumentParser, *, fixed: bool) -> None:
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=128, help="sequences per step")
    parser.add_argument(
        "--zero",
        type=int,
        choices=(0, 1, 2),
        default=1,
        help="over the data-parallel ranks: 1 optimizer states, 2 gradients too",
    )
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16", help="of weights and activations")
    parser.add_argument(
        "--context-parallelism", choices=("ulysses", "ring"), default="ulysses", help="by all_to_all, or in a ring"
    )
    parser.add_argument(
        "--dispatcher", choices=("alltoall", "allgather"), default="alltoall", help="how tokens reach their experts"
    )
    parser.add_argument("--sequential-experts", action="store_true", help="without grouped products of the experts")
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
    parser.add_argument(
        "--recompute-layers",
        type=_numbers,
        help="with full: how many leading layers, of all stages or of each: 3,1,0,0",
    )
    parser.add_argument(
        "--swap-attention", action="store_true", help="with full: attention's results wait on the host instead"
    )
    parser.add_argument("--stage-layers", type=_numbers, help="layers of each stage, for example 20,20,21,19")


# Names in Hugging Face configurations, first found first. Value heads of latent attention are as wide as its keys' part
# that is not rotary in every published model.
_CONFIG_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num"),
    "ffn": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "head_dim": ("v_head_dim", "head_dim"),
    "window": ("sliding_window",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok",),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_ffn": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "latent_rank": ("kv_lora_rank",),
    "query_rank": ("q_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
}
# Model types whose feedforward part has two matrices.
_UNGATED = {"gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "gpt_bigcode"}


def _from_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlanError(f"cannot read the configuration {path}: {reason}") from error
    if not isinstance(config, dict):
        raise PlanError(f"{path} is not a model's configuration: it holds no table of names and values")
    found = {}
    for name, keys in _CONFIG_KEYS.items():
        value = next((config[key] for key in keys if config.get(key)), None)
        if value is not None:
            if not isinstance(value, int):
                raise PlanError(f"{path}: {name} should be a whole number, but is {value!r}")
            found[name] = value
    if config.get("use_sliding_window") is False:
        found.pop("window", None)
    if "shared_ffn" not in found and config.get("n_shared_experts"):
        found["shared_ffn"] = config["n_shared_experts"] * found.get("expert_ffn", 0)
    if "ffn" not in found and config.get("model_type") == "gpt2":
        found["ffn"] = 4 * found.get("hidden", 0)
    found["gated"] = config.get("model_type") not in _UNGATED
    found["qkv_bias"] = bool(config.get("attention_bias", str(config.get("model_type")).startswith("qwen2")))
    found["logit_softcap"] = bool(config.get("final_logit_softcapping"))
    if config.get("model_type") == "gemma2":
        found |= {"post_norms": 2, "window_share": 0.5}
    found["tied_embeddings"] = bool(config.get("tie_word_embeddings", config.get("model_type") == "gpt2"))
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
    if arguments.tied_embeddings:
        fields["tied_embeddings"] = True
    missing = [f"--{name}" for name in ("layers", "hidden", "heads", "ffn", "vocab") if name not in fields]
    if missing:
        raise PlanError(f"the model lacks {', '.join(missing)}; give them, or --model, or --config")
    if not fields.get("head_dim") and fields["hidden"] % fields["heads"]:
        raise PlanError(f"{fields['heads']} heads do not divide the width {fields['hidden']}")
    if fields.get("kv_heads") and fields["heads"] % fields["kv_heads"]:
        raise PlanError(
            f"{fields['kv_heads']} key and value heads do not divide the {fields['heads']} heads of queries"
        )
    model = Model(**fields)
    if model.experts and not 1 <= model.top_k <= model.experts:
        raise PlanError(f"a token goes to 1 to {model.experts} experts (--top-k), not to {model.top_k}")
    if model.top_k and not model.experts:
        raise PlanError(f"--top-k is {model.top_k}, but the model has no --experts")
    return model


def layout_of(arguments: argparse.Namespace) -> Layout:
    numbers = {name.replace("-", "_"): getattr(arguments, name.replace("-", "_"), 1) for name in _LAYOUT_NUMBERS}
    group = numbers["tp"] * numbers["pp"] * numbers["cp"]
    if group < 1:
        raise PlanError("tp, pp and cp must be at least 1")
    npus, dp = getattr(arguments, "npus", None), getattr(arguments, "dp", None)
    recomputed = getattr(arguments, "recompute_layers", None) or ()
    if npus and npus % group:
        raise PlanError(
            f"tp {numbers['tp']} * pp {numbers['pp']} * cp {numbers['cp']} = {group} does not divide {npus} NPUs"
        )
    if npus and dp and npus != group * dp:
        raise PlanError(f"tp * pp * cp * dp = {group * dp}, but --npus is {npus}")
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
        recomputed_layers=recomputed * numbers["pp"] if len(recomputed) == 1 else recomputed,
        swap_attention=getattr(arguments, "swap_attention", False),
        stage_layers=getattr(arguments, "stage_layers", None) or (),
        fp16=arguments.dtype == "fp16",
        ulysses=arguments.context_parallelism == "ulysses",
        dispatcher=arguments.dispatcher,
        grouped_experts=not arguments.sequential_experts,
        **numbers,
    )
