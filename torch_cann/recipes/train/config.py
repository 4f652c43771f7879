"""What AdvancedTrainer's configurations may hold; a key that is none of these is refused, with those that are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

from torch_cann.recipes.train import _checks

STRATEGIES = ("none", "ddp", "fsdp", "tensor", "pipeline", "3d")


class ConfigError(ValueError):
    """A configuration with an unknown key, or values that do not go together."""


@dataclass(frozen=True)
class _Config:
    @classmethod
    def of(cls, what: str, given: "Mapping[str, Any] | Self | None") -> Self:
        """From a dictionary; None is the default.

        Raises:
            ConfigError: names unknown keys, the nearest known one, and all known ones.
        """
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigError(f"{what} must be a dictionary, but is {given!r}")
        known = [field.name for field in fields(cls)]
        for key in given:
            if key not in known:
                near = get_close_matches(str(key), known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise ConfigError(f"{what} has no key {key!r}{hint}; known are {', '.join(known)}")
        return cls(**given)


@dataclass(frozen=True)
class AmpConfig(_Config):
    """Arguments of AutoMixedPrecision; disabled unless a configuration is given."""

    enabled: bool = True
    opt_level: str = "O1"
    dtype: Any = "float16"
    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    keep_fp32: Sequence[Any] = ()
    monitor_interval: int = 10


@dataclass(frozen=True)
class MemoryConfig(_Config):
    """Arguments of MemoryOptimizer, DynamicMemoryAllocator and GradientAccumulation.

    Attributes:
        accumulation_steps: batches of an optimizer step.
        max_memory_utilization: None sets no limit.
        emergency_buffer: used in one process only: ranks cannot repeat a step one by one.
    """

    checkpointing: bool | float = False
    layers: Any = None
    activation_compression: bool | str = False
    activation_offload: bool = False
    zero_stage: int | None = None
    optimizer_state: str = "float32"
    accumulation_steps: int = 1
    max_memory_utilization: float | None = None
    emergency_buffer: float = 0.1


@dataclass(frozen=True)
class ParallelConfig(_Config):
    """How the work is spread.

    Attributes:
        strategy: "none", "ddp", "fsdp" (ZeRO 3, or 2 by memory_config), "tensor", "pipeline" or "3d".
        stages: pipeline stages; for "pipeline" in one process the number of its cards.
        micro_batches: of the pipeline; None is twice the stages.
        schedule, split, devices: of PipelineParallel.
        tensor_parallel: ranks that share each layer; None is all for "tensor", 1 for "3d".
        tensor_plan: names of modules, with * and ?, to "colwise", "rowwise" or a ParallelStyle of PyTorch; None asks
            the model's attribute ``tensor_parallel_plan``.
        compression: of DDP's gradients, as of CompressedCommunicator.
        find_unused_parameters: of DDP.
    """

    strategy: str = "none"
    stages: int = 1
    micro_batches: int | None = None
    schedule: str = "1F1B"
    split: Sequence[Any] | None = None
    devices: Sequence[Any] | None = None
    tensor_parallel: int | None = None
    tensor_plan: Mapping[str, Any] | None = None
    compression: str | None = None
    find_unused_parameters: bool = False

    def __post_init__(self) -> None:
        try:
            _checks.one_of("parallel_config: strategy", self.strategy, STRATEGIES)
            _checks.whole("parallel_config: stages", self.stages, 1)
            for name in ("micro_batches", "tensor_parallel"):
                if getattr(self, name) is not None:
                    _checks.whole(f"parallel_config: {name}", getattr(self, name), 1)
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from None
        belongs = {
            "stages": ("pipeline", "3d"),
            "micro_batches": ("pipeline", "3d"),
            "split": ("pipeline", "3d"),
            "devices": ("pipeline",),
            "tensor_parallel": ("tensor", "3d"),
            "tensor_plan": ("tensor", "3d"),
            "compression": ("ddp",),
            "find_unused_parameters": ("ddp",),
        }
        defaults = {field.name: field.default for field in fields(self)}
        for name, strategies in belongs.items():
            if getattr(self, name) != defaults[name] and self.strategy not in strategies:
                raise ConfigError(
                    f"parallel_config: {name} is for strategy {' and '.join(map(repr, strategies))}, but the strategy "
                    f"is {self.strategy!r}"
                )


def check_together(amp: AmpConfig, parallel: ParallelConfig, memory: MemoryConfig) -> None:
    """Refuses what one configuration asks and another excludes."""
    allowed = {"ddp": (None, 0, 1), "fsdp": (None, 2, 3)}.get(parallel.strategy, (None, 0))
    if memory.zero_stage not in allowed:
        raise ConfigError(
            f"memory_config: zero_stage {memory.zero_stage} does not go with strategy {parallel.strategy!r}: 1 needs "
            "'ddp', 2 and 3 need 'fsdp'"
        )
    if amp.enabled and amp.opt_level == "O3" and parallel.strategy in ("pipeline", "3d"):
        raise ConfigError("amp_config: opt_level O3 casts at the model's ends, which a pipeline cuts off; use O2")
    if parallel.schedule.lower() == "zero-bubble" and memory.checkpointing:
        raise ConfigError(
            "memory_config: checkpointing does not go with schedule 'zero-bubble', whose two halves of backward "
            "both need the activations"
        )
