"""Shape functions that PyTorch decides by the device, where npu's kernels do as the CPU's."""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten


def _as_on_the_host(general: Callable[..., Any]) -> Callable[..., Any]:
    """``general`` for fake tensors of the CPU, with results of the device.

    Of a convolution PyTorch says that its result is contiguous on a device it does not know. On npu it is
    channels-last where it is so on the CPU, which is what lets Inductor choose that layout.
    """

    def convolution(mode: FakeTensorMode, op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
        device = next(a.fake_device for a in (*args, *kwargs.values()) if isinstance(a, FakeTensor))
        if device.type != "npu":
            return general(mode, op, *args, **kwargs)

        def moved(tensor: torch.Tensor, where: torch.device | str) -> torch.Tensor:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=where)

        with mode:
            args, kwargs = tree_map_only(torch.Tensor, lambda tensor: moved(tensor, "cpu"), (args, kwargs))
            return tree_map_only(torch.Tensor, lambda tensor: moved(tensor, device), op(*args, **kwargs))

    return convolution


def register() -> None:
    """Call when torch._subclasses.fake_impls is loaded."""
    table = fake_impls.op_implementations_dict
    for op in (aten.convolution.default, aten._convolution.default, aten.convolution_backward.default):
        table[op] = _as_on_the_host(table[op])
