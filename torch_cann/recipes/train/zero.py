"""ZeRO: what each rank of a data parallel group need not keep of optimizer state (1), gradients (2), parameters (3)."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from torch_cann.recipes.train._device import bring
from torch_cann.recipes.train.checkpointing import repeated_layers

STAGES = (0, 1, 2, 3)
_LARGE = 1 << 20  # parameters that are worth a collective of their own


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
    gather_dtype: torch.dtype | None = None,
    kept: Iterable[nn.Module] = (),
    device: torch.device | None = None,
) -> nn.Module:
    """Stages 2 and 3 by FSDP2, in place: parameters become DTensors, in ``optimizer`` too, which must not have stepped.

    Stage 3 frees a layer's parameters after its forward pass and gathers them again in backward; stage 2 keeps them
    from the forward pass to the end of backward, and communicates a third less. Gathered together are each of
    repeated_layers(), each other large module such as an embedding or a head, and the rest.

    Args:
        gather_dtype: of parameters while they are computed with; gradients are summed in float32. None is their own.
        kept: modules whose parameters, and those inside, are gathered in their own dtype.
        device: of this rank, to which what is gathered together comes and is cut, one after another, so that the whole
            model need not fit: it may be on the host, or on the meta device (see bring()). None is where the model is.

    Raises:
        RuntimeError: without ranks.
        ValueError: if ``optimizer`` has stepped, or a module of ``kept`` shares weights with one outside it.
    """
    need_ranks(f"ZeRO stage {stage}")
    if optimizer is not None and optimizer.state:
        raise ValueError(f"ZeRO stage {stage} takes an optimizer that has not stepped yet")
    if mesh is None:
        where = device if device is not None else next(model.parameters()).device
        mesh = init_device_mesh(where.type, (dist.get_world_size(),))
    own, narrow = MixedPrecisionPolicy(), MixedPrecisionPolicy()
    if gather_dtype is not None:
        # Inputs are autocast's business, which knows what each operator needs.
        narrow = MixedPrecisionPolicy(gather_dtype, torch.float32, cast_forward_inputs=False)
    outer, inside = _outermost(model, kept)
    units = {*repeated_layers(model), *_large_leaves(model)} - {model}
    with rebound(model, optimizer):
        few = [module for module in outer if module not in units and _numel(module) < _LARGE]
        if few:  # the norms of all layers: one collective each way
            fully_shard(few, mesh=mesh, reshard_after_forward=False, mp_policy=own)
        for module in reversed(list(model.modules())):  # what is inside another comes first
            if module in units or (module in outer and module not in few):
                policy = own if module in inside else narrow
                fully_shard(module, mesh=mesh, reshard_after_forward=stage == 3, mp_policy=policy)
        fully_shard(model, mesh=mesh, reshard_after_forward=stage == 3, mp_policy=narrow)
        if device is not None:
            bring(model, device)
    return model


def _numel(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _outermost(model: nn.Module, kept: Iterable[nn.Module]) -> tuple[list[nn.Module], set[nn.Module]]:
    """Those of ``kept`` that have parameters and are in no other one, and all modules that they are or hold."""
    wanted, outer, inside, owners = set(kept), [], set(), _owners(model)
    for name, module in model.named_modules():  # a module comes before those inside it
        if module not in wanted or module in inside or not _numel(module):
            continue
        outer.append(module)
        held = set(module.modules())
        inside |= held
        if not held.issuperset(owner for p in module.parameters() for owner in owners[p]):
            raise ValueError(
                f"{name} is to stay in float32, but shares weights with a module outside it that is gathered in 16 "
                "bits; take it out of keep_fp32, or use level O1, which gathers all in float32"
            )
    return outer, inside


def _owners(model: nn.Module) -> dict[nn.Parameter, list[nn.Module]]:
    """The modules that each parameter is registered in: several where weights are shared."""
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    return owners


def _large_leaves(model: nn.Module) -> list[nn.Module]:
    """Large modules without children, outside the repeated layers, whose weights no other module has."""
    covered = {inner for layer in repeated_layers(model) for inner in layer.modules()}
    owners = _owners(model)
    return [
        module
        for module in model.modules()
        if module not in covered
        and not next(module.children(), None)
        and _numel(module) >= _LARGE
        and all(len(owners[p]) == 1 for p in module.parameters())
    ]


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
