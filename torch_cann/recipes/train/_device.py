"""Which device a recipe works on, the module of PyTorch that speaks for it, and how a model comes there."""

from types import ModuleType

import torch
from torch import nn


def resolve_device(device: torch.device | str | int | None) -> torch.device:
    """``device`` with its index; None is the current device of the accelerator, or the CPU where there is none."""
    accelerator = torch.accelerator.current_accelerator() or torch.device("cpu")
    if isinstance(device, int):
        device = torch.device(accelerator.type, device)
    device = torch.device(accelerator if device is None else device)
    if device.type != "cpu" and device.index is None:
        device = torch.device(device.type, torch.get_device_module(device.type).current_device())
    return device


def device_module(device: torch.device) -> ModuleType:
    """torch.npu for an npu device, torch.cpu for the CPU."""
    return torch.get_device_module(device.type)


def bring(model: nn.Module, device: torch.device) -> None:
    """Moves ``model`` to ``device``; parameters on the meta device get memory there and their modules' own initial values.

    Parameter objects that were on the meta device are replaced.

    Raises:
        ValueError: if a module has tensors on the meta device and no reset_parameters() that would fill them.
    """
    empty = [module for module in model.modules() if any(t.is_meta for t in _own_tensors(module))]
    for module in empty:
        if not callable(getattr(module, "reset_parameters", None)):
            raise ValueError(
                f"{type(module).__name__} has weights or buffers on the meta device, but no reset_parameters() that "
                "gives them values: add one, or make the model on the CPU"
            )
    if not empty:
        model.to(device)
        return
    model.to_empty(device=device)
    with torch.no_grad():
        for module in empty:
            module.reset_parameters()


def _own_tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]
