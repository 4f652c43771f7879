"""Operators of torch_npu that need Python: those that communicate. The others are C++ (csrc/aten/npu)."""

from torch_cann.ops.formats import Format

__all__ = ["Format", "register"]


def register() -> None:
    """Defines the operators. Called once, when torch_cann is imported."""
    import torch

    if torch.distributed.is_available():
        from torch_cann.ops import collective_products

        collective_products.register()
