"""Small tensors that were copied to the host and whose values nobody knows. What is computed of them is unknown as well, and
what a script decides by them is refused, as if it had asked the device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from torch_cann import _C

_sim = _C._sim
# As large as tensors whose values the device knows; larger ones are states and weights on their way to a file.
_MOST_BYTES = 1 << 16


class HostCopy(torch.Tensor):
    """Made by install() of a copy; results of operators on it are of this type too."""

    number: Callable[[torch.Tensor], Any]  # what reading one gives: a number that was assumed, or an unknown one

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        if not isinstance(result, HostCopy) or result.device.type == "cpu":
            return result
        with torch._C.DisableTorchFunctionSubclass():  # on the device it is one of many that nobody knows
            return torch.empty_like(result).as_subclass(torch.Tensor)

    def item(self) -> Any:
        return HostCopy.number(self) if self.numel() == 1 else super().item()

    def tolist(self) -> Any:
        return self.item() if self.dim() == 0 else [part.tolist() for part in self.unbind(0)]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return self.item().__index__()

    def __float__(self) -> float:
        return float(self.item())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"tensor(?, size={tuple(self.shape)}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else repr(self)


def install(number: Callable[[torch.Tensor], Any], internal: tuple[str, ...]) -> None:
    """Has ``Tensor.cpu`` and ``Tensor.to`` give a HostCopy of what nobody knows, to callers outside of the files and folders
    ``internal``: those move whole models and read nothing. Once per process, before the script starts."""
    HostCopy.number = staticmethod(number)

    def marking(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def copy(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            result = real(self, *args, **kwargs)
            if (
                type(result) is not torch.Tensor
                or result.device.type != "cpu"
                or self.device.type != "npu"
                or result.nbytes > _MOST_BYTES
                or _sim.values_known(self)
                or sys._getframe(1).f_code.co_filename.startswith(internal)
            ):
                return result
            if not result.is_floating_point():
                result.zero_()  # there is no NaN, and no garbage either
            return result.as_subclass(HostCopy)

        return copy

    torch.Tensor.cpu, torch.Tensor.to = marking(torch.Tensor.cpu), marking(torch.Tensor.to)
