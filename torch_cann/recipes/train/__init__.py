"""Training recipes, importable as ``cann.recipes.train``: docs/recipes.md shows each at work.

From the bottom up; a module knows only those above it in this list:

    _device, _checks                what the others share
    sampler, device_prefetch        -> data_loader      OptimizedDataLoader
    precision_levels, master_weights, range_probe, gradients,
    loss_scaling, training_monitor  -> mixed_precision  AutoMixedPrecision
    accumulation                                        GradientAccumulation
    checkpointing                                       apply_checkpointing
    saved_activations, optimizer_states, zero
                                    -> memory           MemoryOptimizer
    allocator                                           DynamicMemoryAllocator
    compression, topology           -> distributed_optimizer, pipeline
    config, losses, strategies      -> assembly
    schedules, metrics, run_log, hooks, shutdown, loader_position,
    run_state, checkpoint_files, run_checkpoint
                                    -> trainer          AdvancedTrainer

A name is loaded when it is asked for, so that importing this package costs nothing.
"""

import importlib

# Module -> the public names in it.
_PUBLIC = {
    "accumulation": ("GradientAccumulation",),
    "allocator": ("DynamicMemoryAllocator",),
    "checkpointing": ("apply_checkpointing",),
    "compression": ("CompressedCommunicator",),
    "data_loader": ("OptimizedDataLoader",),
    "distributed_optimizer": ("DistributedOptimizer",),
    "memory": ("MemoryOptimizer",),
    "mixed_precision": ("AutoMixedPrecision",),
    "pipeline": ("PipelineParallel",),
    "topology": ("TopologyAwareScheduler",),
    "trainer": ("AdvancedTrainer",),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'cann.recipes.train' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
