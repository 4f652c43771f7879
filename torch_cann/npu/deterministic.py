"""Deterministic algorithms for a part of a model: on from one tensor of the forward pass to another, off outside."""

import torch

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "disable_deterministic_with_backward",
    "enable_deterministic_with_backward",
    "set_deterministic_level",
]

_LEVELS = (0, 1, 2)


def set_deterministic_level(level: int) -> None:
    """0: any algorithm, 1: deterministic ones, 2: also equal for every batch size on hardware, the same as 1 here."""
    if isinstance(level, bool) or level not in _LEVELS:
        raise ValueError(f"the deterministic level must be 0, 1 or 2, but got {level!r}" + pta_error(ErrCode.VALUE))
    torch.use_deterministic_algorithms(level > 0)


class _Deterministic(torch.autograd.Function):
    """Identity. Sets the mode in forward, and the opposite in backward, which passes the same point the other way."""

    @staticmethod
    def forward(ctx, tensor: torch.Tensor, mode: bool) -> torch.Tensor:
        ctx.mode = mode
        torch.use_deterministic_algorithms(mode)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        torch.use_deterministic_algorithms(not ctx.mode)
        return grad, None


def enable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``; from here on algorithms are deterministic, and in backward up to here."""
    return _Deterministic.apply(tensor, True)


def disable_deterministic_with_backward(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``; from here on algorithms need not be deterministic, and in backward they are from here."""
    return _Deterministic.apply(tensor, False)
