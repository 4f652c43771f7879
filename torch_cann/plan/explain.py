"""`npu-plan explain`: the usual sizing arithmetic for any model, and where its shortcuts hold.

The shortcuts are those of introductory articles: 16 bytes a parameter, 6 N FLOPs a token, a peak rate, and gradients
over one link.
"""

from __future__ import annotations

from typing import Any

from torch_cann import _C
from torch_cann.plan.layout import Model

_DAY = 86400.0
_GIB = 2**30


def parameters(model: Model) -> float:
    """All weights: attention, feedforward (every expert), embedding and head; norms and biases left out."""
    attention = model.attention_parameters
    matrices = 3 if model.gated else 2
    dense = matrices * model.hidden * model.ffn
    routed = matrices * model.hidden * ((model.expert_ffn or model.ffn) * model.experts + model.shared_ffn)
    layers = model.layers * attention
    layers += (
        routed * (model.layers - model.dense_layers) + dense * model.dense_layers
        if model.experts
        else dense * model.layers
    )
    return layers + model.vocab * model.hidden * (1 if model.tied_embeddings else 2)


def _memory(count: float, capacity: float) -> list[str]:
    full = 16 * count
    return [
        "Memory",
        f"  weights in fp32              {4 * count / 1e9:>12,.1f} GB",
        f"  + gradients                  {8 * count / 1e9:>12,.1f} GB",
        f"  + Adam's two moments         {full / 1e9:>12,.1f} GB   (16 bytes a parameter; mixed precision: 2+4+4+4+4 = 18,",
        "                                                  or 16 with 16-bit gradients)",
        f"  cards of {capacity / _GIB:.1f} GiB usable      {full / capacity:>12,.1f}      at least: activations, communicator buffers (0.4 GiB",
        "                                                  a group) and the context come on top, and the card's",
        "                                                  nominal size is not all usable",
        f"  plain data parallelism needs all of it on every card: {'fits' if full < capacity else 'does not fit'} in one card",
    ]


def _compute(
    model: Model, count: float, sequence: int, tokens: float, peak: float, world: int, mfu: float
) -> list[str]:
    exact = model.flops_per_token(sequence)
    lines = ["", "Compute", f"  FLOPs a token, 6 N           {6 * count / 1e9:>12,.1f} GFLOP"]
    used = count
    if model.experts:
        used = model.matmul_parameters
        lines += [
            f"  6 N of the weights it meets  {6 * used / 1e9:>12,.1f} GFLOP  ({used / 1e9:,.1f} B: {model.top_k} of {model.experts} "
            "experts a layer, the embedding not)"
        ]
    seconds = 6 * used * tokens / (peak * 1e12)
    return [
        *lines,
        f"  with attention, head only    {exact / 1e9:>12,.1f} GFLOP  ({exact / (6 * used) - 1:+.1%}; causal, sequence {sequence})",
        f"  {tokens:.3g} tokens on one card at its peak of {peak:.1f} TFLOPS: {seconds:.3g} s = {seconds / _DAY:,.0f} days",
        f"  on {world} cards at {mfu:.0%} of the peak: {seconds / world / mfu / _DAY:,.1f} days",
    ]


def _communication(count: float, gbps: float) -> list[str]:
    whole = 4 * count / (gbps * 1e9)
    return [
        "",
        "Gradients",
        f"  {4 * count / 1e9:,.1f} GB of fp32 gradients over {gbps:g} GB/s: {whole:.2f} s",
        f"  an all-reduce moves nearly twice that ({2 * whole:.2f} s); tensor and pipeline parallelism divide it by tp * pp,",
        "  and most of it runs beside the backward pass: the share of a step that it adds is what `estimate` prints as exposed",
    ]


def _claim(model: Model, sequence: int, batch: int, cards: int, seconds: float, peak: float) -> list[str]:
    rate = model.flops_per_token(sequence) * batch * sequence / (cards * seconds) / 1e12
    verdict = "more than the chip's peak: cannot be" if rate > peak else f"{rate / peak:.0%} of the peak"
    return [
        "",
        "The claimed step",
        f"  {batch} sequences of {sequence} on {cards} cards in {seconds:g} s need {rate:.0f} TFLOPS a card, {verdict}",
    ]


def explain(
    model: Model,
    soc: dict[str, Any],
    *,
    sequence: int,
    tokens: float,
    world: int,
    mfu: float,
    gbps: float,
    batch: int = 0,
    step_seconds: float = 0.0,
) -> str:
    """The arithmetic as text. ``batch`` sequences in ``step_seconds`` on ``world`` cards are checked if given."""
    count = parameters(model)
    lines = [f"{count / 1e9:.2f} B parameters on {soc['name']}", ""]
    lines += _memory(count, soc["usable_hbm_bytes"])
    lines += _compute(model, count, sequence, tokens, soc["peak_fp16_tflops"], world, mfu)
    lines += _communication(count, gbps)
    if batch and step_seconds:
        lines += _claim(model, sequence, batch, world, step_seconds, soc["peak_fp16_tflops"])
    return "\n".join(lines)


# What an introductory article on training with CANN says of GPT-3 175B and LLaMA-7B, and what is so.
ARTICLE = """The sizing example of a widely copied article, for GPT-3 175B and LLaMA-7B

  "2.8 TB of states"                  holds: 16 bytes a parameter, fp32 Adam
  "about 90 cards of 32 GB"           holds as a lower bound for states alone; a 32 GB card has {small:.1f} GiB usable, so {cards:.0f},
                                      and activations come on top
  "6 N = 1050 GFLOP a token"          holds within 3 %: attention at sequence 2048 adds 1.4 %
  "1.05e24 FLOP for 1e12 tokens"      holds
  "35 million s, 405 days at 300 T"   100 times too small: 1.05e24 / 3e14 = 3.5e9 s, 40,509 days on one card
  "gradients take 7 s, 87.5 %"        holds only for plain data parallelism without overlap, in which the model does not fit;
                                      with TP8 x PP16 a card reduces 1/128 of it
  "LLaMA-7B, 128 sequences, 2 s"      on 8 cards that is {claimed:.0f} TFLOPS a card at sequence 2048; the peak is {peak:.1f}
  "DDP in fp32 of a 7B model"         needs {ddp:.0f} GiB of states on every card, which has {usable:.1f}: out of memory
"""


def article(soc: dict[str, Any]) -> str:
    llama = Model(layers=32, hidden=4096, heads=32, vocab=32000, ffn=11008)
    small = _C._sim.soc("Ascend910B4")["usable_hbm_bytes"]
    return ARTICLE.format(
        small=small / _GIB,
        cards=2.8e12 / small,
        claimed=llama.flops_per_token(2048) * 128 * 2048 / (8 * 2) / 1e12,
        peak=soc["peak_fp16_tflops"],
        ddp=16 * parameters(llama) / _GIB,
        usable=soc["usable_hbm_bytes"] / _GIB,
    )
