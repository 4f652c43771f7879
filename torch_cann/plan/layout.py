"""What `npu-plan estimate` is asked: the shape of a transformer and how it is spread over NPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch_cann.plan.errors import PlanError


@dataclass(frozen=True)
class Model:
    """A decoder. Sizes as in Hugging Face configurations; ``ffn`` counts one of the two matrices of a gated unit."""

    layers: int
    hidden: int
    heads: int
    vocab: int
    ffn: int
    kv_heads: int = 0  # 0: as many as heads
    head_dim: int = 0  # 0: hidden / heads
    gated: bool = True
    tied_embeddings: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0  # 0: ffn
    shared_ffn: int = 0
    dense_layers: int = 0  # leading layers without experts
    window: int = 0  # attention looks back so far; 0: over everything
    window_share: float = 1.0  # share of the layers that have the window
    latent_rank: int = 0  # width of multi-head latent attention's keys and values (DeepSeek-V2: 512); 0: none
    rope_dim: int = 64  # its rotary part
    query_rank: int = 0  # width of its queries' narrow vector (DeepSeek-V3: 1536); 0: none
    post_norms: int = 0  # further norms per layer, as in Gemma 2
    qkv_bias: bool = False  # added to queries, keys and values
    logit_softcap: bool = False  # logits are bounded by a tanh, as in Gemma 2

    @property
    def kv(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def latent(self) -> bool:
        return self.latent_rank > 0

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        if not self.latent:
            return self.hidden * self.head * (2 * self.heads + 2 * self.kv)
        narrow = self.hidden * (self.latent_rank + self.rope_dim) + self.latent_rank * self.heads * 2 * self.head
        queries = self.heads * (self.head + self.rope_dim)
        if self.query_rank:
            queries = self.query_rank * (queries + self.hidden)
        else:
            queries *= self.hidden
        return narrow + queries + self.hidden * self.heads * self.head

    @property
    def matmul_parameters(self) -> float:
        """Weights that a token is multiplied with, the head included and the embedding not."""
        attention = self.attention_parameters
        matrices = 3 if self.gated else 2
        dense = matrices * self.hidden * self.ffn
        used = dense
        if self.experts:
            routed = matrices * self.hidden * (self.top_k * (self.expert_ffn or self.ffn) + self.shared_ffn)
            used = (dense * self.dense_layers + routed * (self.layers - self.dense_layers)) / self.layers
        return self.layers * (attention + used) + self.hidden * self.vocab

    def flops_per_token(self, sequence: int) -> float:
        """Model FLOPs, forward and backward, causal attention, no recomputation: what MFU is defined by."""
        # Of queries' and values' width; those of latent attention differ by the rotary part.
        head = self.head + self.rope_dim / 2 if self.latent else self.head
        return 6 * self.matmul_parameters + 6 * sequence * self.heads * head * self.layers


@dataclass(frozen=True)
class Layout:
    """How a step is spread. ``world`` = tp * cp * dp * pp."""

    sequence: int
    micro_batch: int
    global_batch: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    vpp: int = 1  # model chunks per pipeline stage
    sequence_parallel: bool = True
    zero: int = 0  # over the data-parallel ranks: 1 optimizer states, 2 gradients too
    recompute: str = "none"  # none, selective (attention scores, where attention is not fused), full
    recomputed_layers: tuple[int, ...] = ()  # with full: leading layers of each stage's chunks; (): all layers
    swap_attention: bool = False  # with full: attention's results wait in host memory and are not computed again
    stage_layers: tuple[int, ...] = ()  # uneven stages
    fused_collectives: bool = False  # MC2: matrix products fused with the tensor-parallel collectives
    overlap_gradients: bool = False
    overlap_parameters: bool = False
    ulysses: bool = True  # context parallelism by all_to_all, else a ring
    flash: bool = True
    fused_norm: bool = True
    fused_rotary: bool = True
    fused_gated: bool = True
    reuse_master: bool = False  # 16-bit weights live in the upper half of the fp32 masters
    fp16: bool = False
    fp32_gradients: bool = False  # with fp16: gradients are added up in fp32 all the same
    fused_gradients: bool = False  # weight gradients added up inside the product
    rotary: bool = True
    dropout: bool = False  # in attention and before the residual sums
    fused_softmax: bool = False  # scale, mask and softmax in one kernel, where attention is not fused as a whole
    dispatcher: str = "alltoall"  # how tokens reach their experts: alltoall, allgather
    grouped_experts: bool = True  # all local experts in one kernel, else one after another
    recompute_activation: bool = False  # the feedforward's nonlinearity is computed again in backward

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        return max(1, round(self.global_batch / (self.dp * self.micro_batch)))

    def describe(self) -> str:
        """In one line: tp8 pp16 dp8 mbs1 recompute=none."""
        parts = [f"tp{self.tp} pp{self.pp} dp{self.dp}"]
        parts += [f"{name}{getattr(self, name)}" for name in ("cp", "ep", "vpp") if getattr(self, name) > 1]
        return " ".join([*parts, f"mbs{self.micro_batch} recompute={self.recompute}"])

    def layers_of(self, stage: int, model: Model) -> int:
        return self.stage_layers[stage] if self.stage_layers else model.layers // self.pp


def check(model: Model, layout: Layout) -> None:
    """Raises PlanError with one sentence for a layout that cannot be."""
    for name in ("tp", "pp", "cp", "ep", "dp", "vpp", "micro_batch", "global_batch", "sequence"):
        if getattr(layout, name) < 1:
            raise PlanError(f"{name} must be at least 1, but is {getattr(layout, name)}")
    if model.heads % layout.tp:
        raise PlanError(f"tensor parallelism {layout.tp} does not divide the {model.heads} attention heads")
    if model.kv % layout.tp and layout.tp % model.kv:
        raise PlanError(
            f"tensor parallelism {layout.tp} neither divides nor is divided by the {model.kv} key-value heads"
        )
    if layout.stage_layers:
        if len(layout.stage_layers) != layout.pp or sum(layout.stage_layers) != model.layers:
            raise PlanError(
                f"the stages' layers {list(layout.stage_layers)} must be {layout.pp} numbers that sum up to {model.layers}"
            )
    elif model.layers % (layout.pp * layout.vpp):
        raise PlanError(
            f"{layout.pp} stages of {layout.vpp} chunks do not divide the {model.layers} layers; "
            "--stage-layers can spread them unevenly"
        )
    if layout.global_batch % (layout.dp * layout.micro_batch):
        raise PlanError(
            f"{layout.dp} data-parallel ranks of micro-batch {layout.micro_batch} do not divide the global batch "
            f"{layout.global_batch}"
        )
    if layout.sequence % (layout.cp * (layout.tp if layout.sequence_parallel else 1)):
        raise PlanError(f"the sequence {layout.sequence} does not divide over cp {layout.cp} and tp {layout.tp}")
    if layout.vpp > 1 and layout.pp == 1:
        raise PlanError(f"{layout.vpp} chunks a stage need a pipeline to interleave in, but there is one stage")
    if layout.ep > 1 and not model.experts:
        raise PlanError(f"expert parallelism {layout.ep} is for mixtures of experts, and the model has no experts")
    if model.experts and model.experts % layout.ep:
        raise PlanError(f"expert parallelism {layout.ep} does not divide the {model.experts} experts")
    if layout.ep > 1 and (layout.dp * layout.cp) % layout.ep:
        raise PlanError(
            f"expert parallelism {layout.ep} does not divide the {layout.dp * layout.cp} data-parallel ranks"
        )
    if layout.recompute not in ("none", "selective", "full"):
        raise PlanError(f"recompute is none, selective or full, not {layout.recompute!r}")
    if layout.recomputed_layers and (len(layout.recomputed_layers) != layout.pp or min(layout.recomputed_layers) < 0):
        raise PlanError(
            f"the recomputed layers {list(layout.recomputed_layers)} must be {layout.pp} numbers, one for each stage"
        )
    if layout.recompute != "full" and (layout.recomputed_layers or layout.swap_attention):
        raise PlanError("recomputed layers and swapped attention go with full recomputation")
    if layout.zero not in (0, 1, 2):
        raise PlanError(f"zero is 0, 1 or 2, not {layout.zero}: sharded parameters are not in the program")
    if layout.dispatcher not in ("alltoall", "allgather"):
        raise PlanError(f"dispatcher is alltoall or allgather, not {layout.dispatcher!r}")


def with_fields(layout: Layout, **changes: Any) -> Layout:
    return replace(layout, **changes)
