"""Which device a recipe works on, and the module of PyTorch that speaks for it."""

from types import ModuleType

import torch


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
