"""Operators of torch_npu that need Python: those that communicate, and parts of others.

The rest is C++ (csrc/aten).
"""

from torch_cann.ops.formats import Format

__all__ = ["Format", "register"]


def register() -> None:
    """Defines the operators. Called once, when torch_cann is imported."""
    import torch

    from torch_cann.ops import batch_norm

    batch_norm.register()
    if torch.distributed.is_available():
        from torch_cann.ops import collective_products

        collective_products.register()
