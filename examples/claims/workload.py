"""Steps of a Llama-like model: by a plain loop, or by AdvancedTrainer with the recipes.

recipes_report.py runs three of them dry on simulated servers, where tokens and weights need no values:

npu-plan run --nnodes 1 --nproc-per-node 8 examples/claims/workload.py --loop plain --parallel fsdp

and convergence.py runs some hundred in earnest, of the same loops with the same options.
"""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_npu  # noqa: F401  makes the device known where it does not load itself
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 3  # the last one is measured
SHAPES = {  # layers, width, heads, inner width of the feed-forward
    "7b": (32, 4096, 32, 11008),
    "1b": (16, 2048, 16, 5504),
    "tiny": (2, 128, 4, 344),
}
VOCABULARY = 32000


class Block(nn.Module):
    """Attention and a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def build(shape: str, layers: int | None, vocabulary: int = VOCABULARY, device: str = "meta") -> nn.Sequential:
    """The model, on the meta device without memory; ``layers`` replaces the shape's own number."""
    depth, width, heads, inner = SHAPES[shape]
    with torch.device(device):
        blocks = [Block(width, heads, inner) for _ in range(layers or depth)]
        head = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False))
        return nn.Sequential(nn.Embedding(vocabulary, width), *blocks, head)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1).float(), target.flatten())


def to_card(model: nn.Module) -> None:
    """Moves the model; one without memory gets some."""
    if next(model.parameters()).is_meta:
        model.to_empty(device="npu")
    else:
        model.npu()


def average_gradients(model: nn.Module) -> None:
    """One all_reduce a parameter, after backward: what data parallelism is before anyone optimises it."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)


def train_plainly(args: argparse.Namespace, model: nn.Sequential, batches: list) -> None:
    """What a first version of a training script does, in float32 or under autocast."""
    wrapped: nn.Module = model
    if args.parallel == "fsdp":
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    to_card(model)
    if args.parallel == "ddp":
        wrapped = DistributedDataParallel(model, device_ids=[torch.npu.current_device()])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    autocast = torch.autocast("npu", torch.bfloat16) if args.precision == "bf16" else nullcontext()
    for inputs, target in batches:
        with autocast:
            loss = loss_of(wrapped(inputs.npu()), target.npu())
        loss.backward()
        if args.parallel == "by-hand":
            average_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def train_by_recipes(args: argparse.Namespace, model: nn.Sequential, batches: list) -> None:
    """The same by configuration."""
    from cann.recipes.train import AdvancedTrainer

    parallel = {"strategy": args.parallel}
    if args.parallel == "pipeline":
        to_card(model)
        parallel |= {"stages": dist.get_world_size(), "micro_batches": args.micro_batches}
    if args.parallel == "ddp":
        parallel["compression"] = args.compression
    trainer = AdvancedTrainer(
        model,
        torch.optim.AdamW(model.parameters(), lr=args.rate),
        batches,
        amp_config={"dtype": "bfloat16", "opt_level": args.level} if args.precision == "bf16" else None,
        parallel_config=parallel,
        memory_config={
            "checkpointing": args.checkpointing,
            "activation_compression": args.activations,
            "accumulation_steps": args.accumulate,
        },
        loss_fn=loss_of,
        clip_norm=1.0,
        console=False,
    )
    steps = len(batches) // args.accumulate
    trainer.train(max_steps=steps, log_interval=steps + 1)


def options() -> argparse.ArgumentParser:
    """What both loops take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--loop", choices=("plain", "recipes"), default="plain")
    add("--parallel", choices=("none", "by-hand", "ddp", "fsdp", "pipeline"), default="none")
    add("--model", choices=SHAPES, default="7b")
    add("--layers", type=int, help="instead of the model's own number")
    add("--batch", type=int, default=1, help="sequences of a card in one forward pass")
    add("--accumulate", type=int, default=1, help="forward passes in a step (recipes)")
    add("--micro-batches", type=int, default=8, help="of a pipeline (recipes)")
    add("--sequence", type=int, default=2048)
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add("--level", default="O2", help="of AutoMixedPrecision (recipes)")
    add("--checkpointing", type=float, default=0.0, help="share of layers (recipes)")
    add("--activations", default="", help="activation_compression: bfloat16 or int8 (recipes)")
    add("--compression", help="of DDP's gradients (recipes)")
    add("--rate", type=float, default=1e-4, help="learning rate")
    return parser


def train(args: argparse.Namespace, model: nn.Sequential, batches: list) -> None:
    """Takes a step on each batch, or each ``accumulate`` of them."""
    (train_plainly if args.loop == "plain" else train_by_recipes)(args, model, batches)


def main() -> None:
    args = options().parse_args()

    if args.parallel != "none":
        dist.init_process_group("hccl")
        torch.npu.set_device(dist.get_node_local_rank())
    tokens = torch.zeros(args.batch, args.sequence, dtype=torch.long)
    batches = [(tokens, tokens)] * (STEPS * args.accumulate)
    train(args, build(args.model, args.layers), batches)


if __name__ == "__main__":
    main()
