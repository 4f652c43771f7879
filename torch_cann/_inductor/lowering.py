"""Operators that Inductor must not lower on npu as it does on other devices."""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import fallback_handler, lowerings

aten = torch.ops.aten


def _of_contiguous(op: torch._ops.OpOverload, general: Callable[..., Any]) -> Callable[..., Any]:
    """``op`` called on contiguous tensors.

    PyTorch's fake convolution says that a result on npu is contiguous, whatever its operands are; on the host's kernels
    that is so when they are contiguous.
    """
    call = fallback_handler(op, add_to_fallback_set=False)

    def lower(first: ir.TensorBox, *others: Any, **kwargs: Any) -> Any:
        if first.get_device().type != "npu":
            return general(first, *others, **kwargs)
        operands = [
            ir.ExternKernel.require_contiguous(o) if isinstance(o, ir.TensorBox) else o for o in (first, *others)
        ]
        return call(*operands, **kwargs)

    return lower


def register() -> None:
    for op in (aten.convolution.default, aten.convolution_backward.default):
        lowerings[op] = _of_contiguous(op, lowerings[op])
