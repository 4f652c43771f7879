"""Operators in Python: those of torch_npu that communicate, and one of PyTorch's made of torch_npu's.

The others are C++ (csrc/aten).
"""

from torch_cann.ops.formats import Format

__all__ = ["Format", "register"]


def register() -> None:
    """Defines the operators. Called once, when torch_cann is imported."""
    import torch

    from torch_cann.ops import flash_attention

    flash_attention.register()
    if torch.distributed.is_available():
        from torch_cann.ops import collective_products

        collective_products.register()
