"""The recipes that a trainer's configurations ask for, made and applied to its model."""

from dataclasses import asdict, dataclass

import torch
from torch import nn

from torch_cann.recipes.train.accumulation import GradientAccumulation
from torch_cann.recipes.train.allocator import DynamicMemoryAllocator
from torch_cann.recipes.train.config import AmpConfig, MemoryConfig, ParallelConfig
from torch_cann.recipes.train.losses import LossFunction
from torch_cann.recipes.train.memory import MemoryOptimizer
from torch_cann.recipes.train.mixed_precision import AutoMixedPrecision
from torch_cann.recipes.train.strategies import KINDS, SingleDevice

_FOR_MEMORY_OPTIMIZER = (
    "checkpointing",
    "layers",
    "activation_compression",
    "activation_offload",
    "optimizer_state",
)


@dataclass(frozen=True)
class Recipes:
    """What assemble() made; ``optimizer`` is the one to step."""

    strategy: SingleDevice
    amp: AutoMixedPrecision
    memory: MemoryOptimizer
    accumulation: GradientAccumulation
    allocator: DynamicMemoryAllocator | None
    optimizer: torch.optim.Optimizer


def assemble(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    amp: AmpConfig,
    parallel: ParallelConfig,
    memory: MemoryConfig,
    device: torch.device,
    loss_fn: LossFunction,
    clip_norm: float | None,
) -> Recipes:
    """Brings ``model`` to where it trains, in place, as the configurations say.

    Raises:
        ConfigError, TypeError, ValueError, RuntimeError: what the parts raise for wrong values, or missing ranks.
    """
    strategy = KINDS[parallel.strategy](parallel, device, loss_fn)
    arguments = asdict(amp)
    if parallel.strategy in ("fsdp", "tensor", "3d") and amp.opt_level == "O2":
        arguments["opt_level"] = "O1"  # the sharded float32 parameters are the masters
    precision = AutoMixedPrecision(**arguments, device=device, clip_norm=clip_norm, process_group=strategy.model_group)
    stage = memory.zero_stage if memory.zero_stage is not None else 3 if parallel.strategy == "fsdp" else 0
    gathers_16_bits = parallel.strategy == "fsdp" and amp.enabled and amp.opt_level == "O2"
    savings = MemoryOptimizer(
        zero_stage=stage,
        gather_dtype=amp.dtype if gathers_16_bits else None,
        keep_fp32=amp.keep_fp32,
        **{name: getattr(memory, name) for name in _FOR_MEMORY_OPTIMIZER},
    )
    accumulation = GradientAccumulation(memory.accumulation_steps)
    allocator = None
    if memory.max_memory_utilization is not None:
        allocator = DynamicMemoryAllocator(memory.max_memory_utilization, memory.emergency_buffer, device=device)
    prepared = strategy.place(model, optimizer, precision, savings)
    return Recipes(strategy, precision, savings, accumulation, allocator, prepared)
