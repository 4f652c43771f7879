"""Legacy types: torch.npu.FloatTensor(2, 3), isinstance(t, torch.npu.HalfTensor), t.type(torch.npu.HalfTensor).

The tensor types are not subclasses of torch.Tensor and never the type of an object: they build and recognise plain
tensors of one dtype on npu, as torch.cuda's do.
"""

from typing import Any

import torch
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

from torch_cann.utils._error_code import ErrCode, pta_error

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}

__all__ = [f"{name}{kind}" for name in _DTYPES for kind in ("Tensor", "Storage")]


class _TensorType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "npu"
            and instance.dtype == cls.dtype
            and instance.layout == torch.strided
        )

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        """Sizes give an uninitialised tensor, a sequence one with its values, a tensor of this type itself."""
        device = "npu" if device is None else device
        if len(args) == 1 and isinstance(args[0], cls):
            return args[0].detach()
        if args and all(isinstance(size, int) for size in args):
            return torch.empty(args, dtype=cls.dtype, device=device)
        if len(args) == 1 and isinstance(args[0], torch.Size):
            return torch.empty(args[0], dtype=cls.dtype, device=device)
        if len(args) == 1 and not isinstance(args[0], torch.Tensor):
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
        if not args:
            return torch.empty(0, dtype=cls.dtype, device=device)
        raise TypeError(
            f"{cls.__name__}() expects sizes, a sequence or a tensor of this type, but got {args!r}"
            + pta_error(ErrCode.TYPE)
        )


def _tensor_type(name: str, dtype: torch.dtype) -> _TensorType:
    # Tensor.type() reads a class's C-level name, which is what is given here, dots and all.
    cls = _TensorType(f"torch.npu.{name}Tensor", (), {"dtype": dtype, "is_npu": True, "is_sparse": False})
    cls.__module__, cls.__qualname__ = "torch.npu", f"{name}Tensor"
    return cls


class _StorageDtype:
    """The attribute ``dtype``, which warns as all typed storages do."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __get__(self, instance: Any, owner: type) -> torch.dtype:
        _warn_typed_storage_removal()
        return self._dtype


def _storage_type(name: str, dtype: torch.dtype) -> type:
    # TypedStorage takes the device from the last part of the module's name.
    members = {"dtype": _StorageDtype(dtype), "_dtype": dtype, "__module__": "torch.npu"}
    return type(_LegacyStorage)(f"{name}Storage", (_LegacyStorage,), members)


for _name, _dtype in _DTYPES.items():
    globals()[f"{_name}Tensor"] = _tensor_type(_name, _dtype)
    globals()[f"{_name}Storage"] = _storage_type(_name, _dtype)
