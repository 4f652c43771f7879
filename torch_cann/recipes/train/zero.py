"""ZeRO: what each rank of a data parallel group need not keep of optimizer state (1), gradients (2), parameters (3)."""

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from torch_cann.recipes.train.checkpointing import repeated_layers

STAGES = (0, 1, 2, 3)


def need_ranks(what: str) -> None:
    """Raises RuntimeError unless there is a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"{what} shares its work among ranks: start the script with torchrun and call "
            'torch.distributed.init_process_group("hccl") first'
        )


def shard_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Stage 1: an optimizer of the same kind whose state is spread over the ranks of the default group.

    Raises:
        ValueError: if ``optimizer`` has taken steps already.
    """
    need_ranks("ZeRO stage 1")
    if optimizer.state:
        raise ValueError("ZeRO stage 1 takes an optimizer that has not stepped yet")
    taken = inspect.signature(type(optimizer)).parameters  # AdamW has defaults that its constructor does not take
    defaults = {key: value for key, value in optimizer.defaults.items() if key in taken}
    groups = [{k: v for k, v in group.items() if k == "params" or k in taken} for group in optimizer.param_groups]
    return ZeroRedundancyOptimizer(groups, type(optimizer), **defaults)


def shard_model(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    stage: int,
    mesh: DeviceMesh | None = None,
    policy: MixedPrecisionPolicy | None = None,
) -> nn.Module:
    """Stages 2 and 3 by FSDP2, in place: parameters become DTensors, in ``optimizer`` too, which must not have stepped.

    Stage 3 frees a layer's parameters after its forward pass and gathers them again in backward; stage 2 keeps them
    from the forward pass to the end of backward, and communicates a third less.
    """
    need_ranks(f"ZeRO stage {stage}")
    if optimizer is not None and optimizer.state:
        raise ValueError(f"ZeRO stage {stage} takes an optimizer that has not stepped yet")
    if mesh is None:
        mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": stage == 3}
    if policy is not None:
        options["mp_policy"] = policy
    with rebound(model, optimizer):
        for layer in repeated_layers(model):
            if layer is not model:
                fully_shard(layer, **options)
        fully_shard(model, **options)
    return model


class rebound:
    """Inside, parameters of ``model`` may be replaced by others of the same names; ``optimizer`` follows at the end.

    Where shards and whole parameters, or shards of several meshes, share a group, it steps them one by one.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self._model, self._optimizer = model, optimizer

    def __enter__(self) -> None:
        self._names = {p: name for name, p in self._model.named_parameters()}

    def __exit__(self, kind: Any, *_rest: Any) -> None:
        if kind is not None or self._optimizer is None:
            return
        now = dict(self._model.named_parameters())
        for group in self._optimizer.param_groups:
            group["params"] = [now[self._names[p]] if p in self._names else p for p in group["params"]]
            if len({getattr(p, "device_mesh", None) for p in group["params"]}) > 1:
                # List operators take parameters of one mesh only.
                group.update({name: False for name in ("foreach", "fused") if name in group})
