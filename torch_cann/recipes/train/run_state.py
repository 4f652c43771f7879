"""The state of a training run as named tensors and small values, the same whatever shares the work."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from torch_cann.recipes.train._device import device_module


def names_of(model: nn.Module, masters: dict[nn.Parameter, nn.Parameter]) -> dict[nn.Parameter, str]:
    """Each parameter that an optimizer of ``model`` may hold, and its name: float32 masters have that of theirs."""
    return {masters.get(p, p): name for name, p in model.named_parameters()}


def model_tensors(
    model: nn.Module, masters: dict[nn.Parameter, nn.Parameter], owns: Callable[[nn.Parameter], bool]
) -> dict[str, torch.Tensor]:
    """Parameters and buffers by "model." and their name, the tensors themselves; masters instead of 16-bit parameters.

    Parameters that another rank has, says ``owns``, are left out, and buffers of modules that have only such.
    """
    found: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules():
        everywhere = dict(module.named_parameters(recurse=False))
        parameters = {name: p for name, p in everywhere.items() if owns(p)}
        if everywhere and not parameters:
            continue
        buffers = {
            name: buffer
            for name, buffer in module.named_buffers(recurse=False)
            if name not in module._non_persistent_buffers_set
        }
        for name, tensor in {**parameters, **buffers}.items():
            found[f"model.{prefix}.{name}" if prefix else f"model.{name}"] = masters.get(tensor, tensor).detach()
    return found


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str]) -> dict[str, torch.Tensor]:
    """The optimizer's state by "optimizer.", the parameter's name and the state's."""
    return {
        f"optimizer.{names[parameter]}.{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def optimizer_places(
    optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str], saved: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Tensors to read the saved state of ``optimizer``'s parameters into, shaped and sharded as these are.

    Args:
        saved: what the checkpoint knows of each of its tensors, by name.
    """
    found: dict[str, list[str]] = {}
    for name in saved:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return {
        name: _place(parameter, saved[name])
        for group in optimizer.param_groups
        for parameter in group["params"]
        for name in found.get(f"optimizer.{names[parameter]}", ())
    }


def _place(parameter: torch.Tensor, saved: Any) -> torch.Tensor:
    if saved.size == parameter.shape:
        return torch.empty_like(parameter, dtype=saved.properties.dtype).detach()
    return torch.empty(saved.size, dtype=saved.properties.dtype)


def fill_optimizer(
    optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str], tensors: dict[str, torch.Tensor]
) -> None:
    """Gives ``optimizer`` the state that was read; its own load_state_dict() decides where each tensor belongs."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.rpartition(".")
        found.setdefault(parameter, {})[key] = tensor
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {i: found[key] for i, p in enumerate(parameters) if (key := f"optimizer.{names[p]}") in found}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def hyperparameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What each parameter group holds besides parameters, and besides how it is computed, which a strategy decides."""
    left_out = ("params", "foreach", "fused")
    return [{k: v for k, v in group.items() if k not in left_out} for group in optimizer.param_groups]


def random_states(devices: Iterable[torch.device]) -> dict[str, Any]:
    """The generators of PyTorch, of its devices, and of Python."""
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "devices": {str(d): device_module(d).get_rng_state(d) for d in devices if d.type not in ("cpu", "meta")},
    }


def set_random_states(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    for name, generator in state["devices"].items():
        device = torch.device(name)
        device_module(device).set_rng_state(generator, device)


def devices_of(model: nn.Module, also: torch.device) -> list[torch.device]:
    """The devices that hold parameters of ``model``, and ``also``."""
    held = {(p.to_local() if isinstance(p, DTensor) else p).device for p in model.parameters()}
    return sorted(held | {also}, key=str)
