"""How a step is computed: on one card, or by ranks that share the data, the parameters, the layers or the depth."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from torch_cann.recipes.train._device import bring
from torch_cann.recipes.train.accumulation import synchronising
from torch_cann.recipes.train.compression import CompressedCommunicator
from torch_cann.recipes.train.config import ConfigError, ParallelConfig
from torch_cann.recipes.train.losses import LossFunction, inputs_and_target, loss_of
from torch_cann.recipes.train.memory import MemoryOptimizer
from torch_cann.recipes.train.mixed_precision import AutoMixedPrecision
from torch_cann.recipes.train.pipeline import PipelineParallel
from torch_cann.recipes.train.precision_levels import compute_inside
from torch_cann.recipes.train.zero import need_ranks, rebound, shard_model

_STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class SingleDevice:
    """One card, one process. The others override what they do otherwise.

    Attributes:
        module: what is called, the model or a wrapper of it.
        data_rank, data_size: this rank's place among those that read different data.
        model_group: ranks that hold other parameters of the same model, if there are.
    """

    model_group: dist.ProcessGroup | None = None
    data_group: dist.ProcessGroup | None = None

    def __init__(self, config: ParallelConfig, device: torch.device, loss_fn: LossFunction) -> None:
        self.config, self.device, self.loss_fn = config, device, loss_fn
        self.data_rank, self.data_size = 0, 1
        self.join()

    def join(self) -> None:
        """Finds this rank's place. Raises ConfigError if there are not the ranks that the strategy needs."""
        if _world() > 1:
            raise ConfigError(
                f"parallel_config: strategy 'none' with {_world()} ranks would train {_world()} models that know "
                "nothing of each other; use 'ddp' or 'fsdp'"
            )

    def place(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, amp: AutoMixedPrecision, memory: MemoryOptimizer
    ) -> torch.optim.Optimizer:
        """Brings the model to its cards and applies precision and memory switches; returns the optimizer to step."""
        self.bring(model, optimizer)
        self.shard(model, optimizer)
        amp.prepare(model, optimizer)
        _, prepared = memory.prepare(model, optimizer, self.device)
        self.module = self.wrap(model)
        return prepared

    def bring(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Moves the model to this rank's card."""
        with rebound(model, optimizer):
            bring(model, self.device)

    def shard(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Replaces parameters by shards of them, before anything else is done to the model."""

    def wrap(self, model: nn.Module) -> Any:
        return model

    def backward(
        self, batch: Any, weight: float, last: bool, amp: AutoMixedPrecision, memory: MemoryOptimizer
    ) -> torch.Tensor:
        """Adds the gradients of ``weight`` times the loss of ``batch``, and returns that product.

        ``last`` says that it is the last one of a step.
        """
        with synchronising(self.module, last):
            with amp.autocast(), memory.activations():
                loss = loss_of(self.module, batch, self.loss_fn) * weight
            amp.backward(loss)
        return loss.detach()

    def evaluate(self, batch: Any, amp: AutoMixedPrecision) -> torch.Tensor:
        """The mean loss of a batch, without gradients."""
        with torch.no_grad(), amp.autocast():
            return loss_of(self.module, batch, self.loss_fn)

    def finish_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Averages gradients over the ranks, where backward has not done it."""

    def owns(self, parameter: nn.Parameter) -> bool:
        """Whether this rank trains ``parameter``."""
        return True

    def mean_over_data(self, value: torch.Tensor) -> torch.Tensor:
        """The mean of a scalar over the ranks that read different data."""
        if self.data_size > 1:
            dist.all_reduce(value, dist.ReduceOp.SUM, group=self.data_group)
            value /= self.data_size
        return value

    def state_dict(self) -> dict[str, Any]:
        """What differs from rank to rank and belongs into a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what state_dict() gave on this rank."""


class DataParallel(SingleDevice):
    """DistributedDataParallel."""

    _communicator: CompressedCommunicator | None = None

    def join(self) -> None:
        need_ranks(f"strategy {self.config.strategy!r}")
        self.data_rank, self.data_size = dist.get_rank(), _world()

    def wrap(self, model: nn.Module) -> Any:
        module = DistributedDataParallel(
            model,
            None if self.device.type == "cpu" else [self.device.index],
            gradient_as_bucket_view=True,
            find_unused_parameters=self.config.find_unused_parameters,
        )
        if self.config.compression not in (None, "none"):
            self._communicator = CompressedCommunicator(self.config.compression)
            self._communicator.attach(module)
        return module

    def state_dict(self) -> dict[str, Any]:
        return {"communicator": self._communicator.state_dict()} if self._communicator else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._communicator and "communicator" in state:
            self._communicator.load_state_dict(state["communicator"])


class FullySharded(DataParallel):
    """FSDP2; the memory configuration's ZeRO stage shards the model, and brings it to the cards."""

    def bring(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Not yet: no card need hold the whole model."""

    def wrap(self, model: nn.Module) -> Any:
        return model


def _tensor_plan(model: nn.Module, plan: Mapping[str, Any] | None) -> dict[str, ParallelStyle]:
    """Names of modules to styles, from patterns. Raises ConfigError for an unknown style or an unmatched pattern."""
    plan = plan if plan is not None else getattr(model, "tensor_parallel_plan", None)
    if not plan:
        raise ConfigError(
            "parallel_config: tensor parallelism needs tensor_plan, for example {'layers.*.up': 'colwise', "
            f"'layers.*.down': 'rowwise'}}, or a model with an attribute tensor_parallel_plan; {type(model).__name__} "
            "has none"
        )
    found: dict[str, ParallelStyle] = {}
    for pattern, style in plan.items():
        names = [name for name, _ in model.named_modules() if fnmatchcase(name, pattern)]
        if not names:
            raise ConfigError(f"parallel_config: tensor_plan: {pattern!r} matches no module of {type(model).__name__}")
        if isinstance(style, str) and style not in _STYLES:
            raise ConfigError(f"parallel_config: tensor_plan: {style!r} is none of {', '.join(_STYLES)}")
        found.update({name: _STYLES[style]() if isinstance(style, str) else style for name in names})
    return found


class TensorParallel(SingleDevice):
    """Layers cut between ranks, and where there are more ranks than that, the replicas sharded by FSDP2."""

    def join(self) -> None:
        need_ranks("strategy 'tensor'")
        ranks = self.config.tensor_parallel or _world()
        if _world() % ranks:
            raise ConfigError(f"parallel_config: {_world()} ranks cannot form groups of tensor_parallel {ranks}")
        self._mesh = init_device_mesh(self.device.type, (_world() // ranks, ranks), mesh_dim_names=("data", "tensor"))
        self.data_rank, self.data_size = self._mesh.get_local_rank("data"), _world() // ranks
        self.data_group = self._mesh.get_group("data")

    def shard(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        plan = _tensor_plan(model, self.config.tensor_plan)
        with rebound(model, optimizer):
            parallelize_module(model, self._mesh["tensor"], plan)
        if self.data_size > 1:
            shard_model(model, optimizer, 3, self._mesh["data"])


class Pipeline(SingleDevice):
    """Stages of layers: on several cards of one process, or one stage a rank."""

    def join(self) -> None:
        world, stages = _world(), self.config.stages
        if world not in (1, stages):
            raise ConfigError(
                f"parallel_config: strategy 'pipeline' of {stages} stages runs in one process or on {stages} ranks, "
                f"not on {world}; '3d' has data parallel ranks too"
            )
        if world > 1:
            self.model_group = dist.group.WORLD

    def place(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, amp: AutoMixedPrecision, memory: MemoryOptimizer
    ) -> torch.optim.Optimizer:
        config = self.config
        self.shard(model, optimizer)
        self.module = PipelineParallel(
            model,
            config.stages,
            config.micro_batches or 2 * config.stages,
            schedule=config.schedule,
            devices=config.devices,
            loss_fn=lambda output, target: self._loss(output, target, amp),
            split=config.split,
            process_group=self.model_group,
        )
        self._owned = set(self.module.parameters())
        amp.prepare(model, optimizer)
        amp.count_only(self.module.counted_parameters())
        _, prepared = memory.prepare(model, optimizer)
        for stage in self.module.stage_modules():
            # Not round train_step(): backward would then run under autocast too.
            compute_inside(stage, amp.autocast)
        return prepared

    def _loss(self, output: Any, target: Any, amp: AutoMixedPrecision) -> torch.Tensor:
        with amp.autocast():
            return self.loss_fn(output, target)

    def backward(
        self, batch: Any, weight: float, last: bool, amp: AutoMixedPrecision, memory: MemoryOptimizer
    ) -> torch.Tensor:
        inputs, target = _one_input(batch)
        scale = amp.scale(torch.full((), weight, device=self.device))
        with memory.activations():
            return self.module.train_step(inputs, target, grad_scale=scale) * weight

    def evaluate(self, batch: Any, amp: AutoMixedPrecision) -> torch.Tensor:
        return self.module.eval_step(*_one_input(batch))

    def owns(self, parameter: nn.Parameter) -> bool:
        return parameter in self._owned


def _one_input(batch: Any) -> tuple[Any, Any]:
    inputs, target = inputs_and_target(batch)
    return inputs[0] if len(inputs) == 1 else inputs, target


class ThreeDimensional(Pipeline):
    """Data, pipeline and tensor parallel: ranks are numbered with tensor fastest, then pipeline, then data.

    So the ranks that exchange most are neighbours, and those of a data parallel group are furthest apart.
    """

    def join(self) -> None:
        need_ranks("strategy '3d'")
        stages, tensor = self.config.stages, self.config.tensor_parallel or 1
        if _world() % (stages * tensor):
            raise ConfigError(
                f"parallel_config: {_world()} ranks are no multiple of stages {stages} x tensor_parallel {tensor}"
            )
        shape = (_world() // (stages * tensor), stages, tensor)
        self._mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("data", "pipeline", "tensor"))
        self.data_rank, self.data_size = self._mesh.get_local_rank("data"), shape[0]
        self.data_group = self._mesh.get_group("data")
        self.model_group = self._mesh.get_group("pipeline")
        self._averages = CompressedCommunicator(None, process_group=self.data_group)

    def shard(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if (self.config.tensor_parallel or 1) > 1:
            model.to(self.device)
            with rebound(model, optimizer):
                parallelize_module(model, self._mesh["tensor"], _tensor_plan(model, self.config.tensor_plan))

    def finish_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        grads = [p.grad for p in self.module.parameters() if p.grad is not None]
        self._averages.all_reduce([g.to_local() if hasattr(g, "to_local") else g for g in grads])


KINDS = {
    "none": SingleDevice,
    "ddp": DataParallel,
    "fsdp": FullySharded,
    "tensor": TensorParallel,
    "pipeline": Pipeline,
    "3d": ThreeDimensional,
}
