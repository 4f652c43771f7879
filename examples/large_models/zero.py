"""ZeRO: the cards of a data parallel run share optimizer state, gradients and parameters.

torchrun --nproc-per-node 2 examples/large_models/zero.py --stage 3

    stage 1   optimizer state        DistributedDataParallel with ZeroRedundancyOptimizer
    stage 2   and gradients          FSDP, ShardingStrategy.SHARD_GRAD_OP
    stage 3   and parameters         FSDP, ShardingStrategy.FULL_SHARD
"""

import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, TransformerLayer, language_model_loss
from text import BYTES, arguments, byte_text
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, DistributedSampler


def mixed_precision_policy(mixed_precision: bool | MixedPrecision | None) -> MixedPrecision | None:
    """FSDP takes a MixedPrecision, not True; who writes True means this: compute and communicate in bfloat16."""
    if isinstance(mixed_precision, bool):
        dtype = torch.bfloat16
        return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype) if mixed_precision else None
    return mixed_precision


def shard(model: nn.Module, stage: int, lr: float, mixed_precision: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    device = torch.npu.current_device()
    if stage == 1:
        model = nn.parallel.DistributedDataParallel(model.npu(), device_ids=[device])
        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=lr)
    model = FSDP(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD if stage == 3 else ShardingStrategy.SHARD_GRAD_OP,
        # Layer by layer, so that only one layer's parameters are whole at a time. Without a policy the model is one
        # piece, and stage 3 saves nothing while it computes.
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={TransformerLayer}),
        mixed_precision=mixed_precision_policy(mixed_precision),
        device_id=device,  # moved piece by piece; .npu() before would need room for the whole model
    )
    # After wrapping: the optimizer must see the sharded parameters.
    return model, torch.optim.AdamW(model.parameters(), lr=lr)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--mixed-precision", action="store_true")
    args = parser.parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="hccl")
    torch.manual_seed(0)
    dataset = byte_text(args.seq_len)
    dataloader = DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset), drop_last=True)
    model = GPTModel(BYTES, args.hidden_size, args.num_layers)
    model, optimizer = shard(model, args.stage, args.lr, args.mixed_precision)
    for step, batch in zip(range(args.steps), dataloader, strict=False):
        with torch.autocast("npu", torch.bfloat16, enabled=args.mixed_precision and args.stage == 1):
            loss = language_model_loss(model(batch["input_ids"].npu()).float(), batch["labels"].npu())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"Step {step}, Loss: {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        state = optimizer.optim.state if args.stage == 1 else optimizer.state
        numbers = sum(t.numel() for values in state.values() for t in values.values() if torch.is_tensor(t))
        parameters = sum(p.numel() for p in model.parameters())
        print(f"rank 0 holds {parameters:,} parameters and {numbers:,} numbers of optimizer state", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
