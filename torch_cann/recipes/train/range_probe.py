"""Which modules a 16-bit type can hold: their values and gradients are looked at in a float32 run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn

# Of float16's range; what a step or a batch later may bring.
HEADROOM = 8.0
# Share of non-zero gradients that may become zero before a module counts as losing them.
TOLERATED_LOSS = 0.05


@dataclass
class Range:
    """What was seen of one module: largest magnitudes, and the share of non-zero gradients that would become zero."""

    name: str
    kind: str
    largest_value: float = 0.0
    largest_gradient: float = 0.0
    lost_gradients: float = 0.0

    def verdict(self, dtype: torch.dtype, loss_scale: float) -> str:
        """ "safe", or what would happen in ``dtype``. Overflow of scaled gradients is left to dynamic loss scaling."""
        limit = torch.finfo(dtype).max / HEADROOM
        if not self.largest_value < limit:  # also NaN
            return f"values up to {self.largest_value:.3g} come near the largest {dtype}, {torch.finfo(dtype).max:.3g}"
        if self.lost_gradients > TOLERATED_LOSS:
            return f"{self.lost_gradients:.0%} of its gradients vanish in {dtype} at loss scale {loss_scale:g}"
        return "safe"


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() and value.numel() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _larger(a: float, b: float) -> float:
    """The larger number; NaN if one is."""
    return a if a != a or b <= a else b


def _largest(value: Any) -> float:
    """The largest magnitude; NaN if there is one."""
    return reduce(_larger, (float(t.detach().abs().max()) for t in _tensors(value)), 0.0)


def observe_ranges(model: nn.Module, run: Callable[[], Any], dtype: torch.dtype, loss_scale: float) -> list[Range]:
    """Calls ``run()``, which runs ``model`` in float32, and returns what its innermost modules held.

    If it returns a scalar that requires grad, gradients of it are looked at too. Nothing is left behind: buffers,
    gradients and random states are as before.
    """
    ranges = {name: Range(name, type(module).__name__) for name, module in model.named_modules() if _is_leaf(module)}
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2  # half the smallest subnormal

    def watch(seen: Range, module: nn.Module) -> list[Any]:
        def forward(_module: nn.Module, args: Any, output: Any) -> None:
            seen.largest_value = _larger(seen.largest_value, _largest([args, output, list(module.parameters())]))
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(backward)

        def backward(gradient: torch.Tensor) -> None:
            magnitude = gradient.detach().abs() * loss_scale
            seen.largest_gradient = _larger(seen.largest_gradient, float(magnitude.max()) / loss_scale)
            nonzero = magnitude > 0
            lost = (nonzero & (magnitude < smallest)).sum() / nonzero.sum().clamp(min=1)
            seen.lost_gradients = max(seen.lost_gradients, float(lost))

        return [module.register_forward_hook(forward)]

    handles = [h for name, module in model.named_modules() if name in ranges for h in watch(ranges[name], module)]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    devices = {t.device for t in model.parameters() if t.device.type != "cpu"}
    device_type = next(iter(devices)).type if devices else "cuda"
    try:
        with torch.random.fork_rng([d.index for d in devices], device_type=device_type):
            loss = run()
            if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
                wanted = [p for p in model.parameters() if p.requires_grad]
                torch.autograd.grad(loss, wanted, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    return list(ranges.values())


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None
