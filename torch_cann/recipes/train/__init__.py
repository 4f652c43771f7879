"""cann.recipes.train: training recipes on top of torch's own parts; each name is loaded when it is asked for."""

import importlib
from typing import Any

# Public name -> module of this package that has it.
_EXPORTS = {
    "CompressedCommunicator": "compression",
    "DistributedOptimizer": "distributed_optimizer",
    "PipelineParallel": "pipeline",
    "TopologyAwareScheduler": "topology",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
