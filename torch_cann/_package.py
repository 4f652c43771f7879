"""Names of the package torch_npu itself that are no operators."""

import math
import sys
from typing import Any

import torch

from torch_cann import _C
from torch_cann._refused import refused
from torch_cann.utils._error_code import ErrCode, pta_error

globals().update(refused(__name__))

unsupported_dtype = [torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]


def _npu_tensor(what: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.device.type != "npu":
        kind = value.device if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{what} must be a tensor on npu, but is on or of {kind}" + pta_error(ErrCode.TYPE))
    return value


def erase_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Takes back ``tensor.record_stream(stream)``, when the work of ``stream`` on the tensor is known to be done.

    Work is done when an operator returns, so a recorded stream delays nothing; only the stream sanitizer remembers it.
    """
    _npu_tensor("erase_stream(): tensor", tensor)
    if not isinstance(stream, torch.Stream):
        raise TypeError(
            f"erase_stream(): stream must be a Stream, but is {type(stream).__name__}" + pta_error(ErrCode.TYPE)
        )
    if _C._npu_sanitizerIsOn():
        _C._npu_sanitizerEraseStream(tensor.data_ptr(), stream)


def matmul_checksum(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Whether ``c`` is a wrong product of ``a`` (m, k) and ``b`` (k, n): a bool scalar on npu, True for a fault.

    Sums of rows are compared: ``a @ b.sum(-1)`` in float32 with ``c.sum(-1)``. A difference counts from the rounding
    that n numbers of c's dtype can have, eight times the expected sqrt(n) of it, relative to the row's sum of absolute
    products.
    """
    a, b, c = (_npu_tensor(f"matmul_checksum(): {n}", t).detach() for n, t in (("a", a), ("b", b), ("c", c)))
    a32, b32 = a.float(), b.float()
    expected, actual = a32 @ b32.sum(-1), c.float().sum(-1)
    scale = a32.abs() @ b32.abs().sum(-1)
    n = b.shape[-1]
    bound = 8 * (torch.finfo(c.dtype).eps / math.sqrt(n) + torch.finfo(torch.float32).eps * math.sqrt(a.shape[-1]))
    wrong = ~((expected - actual).abs() <= bound * scale + torch.finfo(torch.float32).tiny)
    return wrong.any()


def _apply_patches(monkey_patches: list[list[Any]]) -> None:
    """Sets attributes of torch: each patch is a dotted name below torch and the new value.

    Modules that imported the old object by name get the new one too, as far as they are part of torch.
    """
    for name, value in monkey_patches:
        *parents, attribute = name.split(".")
        owner: Any = torch
        for parent in parents:
            owner = getattr(owner, parent)
        old = getattr(owner, attribute, None)
        setattr(owner, attribute, value)
        for module_name, module in list(sys.modules.items()):
            if old is not None and module_name.startswith("torch.") and getattr(module, attribute, None) is old:
                setattr(module, attribute, value)


def _apply_all_patches() -> None:
    """Does what ``import torch_npu`` has to change in PyTorch: nothing here."""
