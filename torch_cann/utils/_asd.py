"""Detection of silent faults of arithmetic units. Simulated units have none, so nothing is watched."""

import torch

__all__ = ["register_asd_hook", "set_asd_loss_scale"]


def set_asd_loss_scale(loss_scale: float = 1.0) -> None:
    """The factor by which gradients are larger than they are. Raises ValueError unless it is above 0."""
    if not loss_scale > 0:
        raise ValueError(f"the loss scale must be above 0, but got {loss_scale!r}")


def register_asd_hook(x: torch.Tensor | None, weight: torch.Tensor) -> None:
    """Would watch the gradient of ``x``, an activation next to ``weight``."""
