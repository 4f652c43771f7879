"""Options of the CANN compiler and runtime, checked and remembered.

Kernels here are PyTorch's own CPU kernels in full precision, so options that choose between kernels change no result;
they are kept because scripts set them and read them back.
"""

import enum
from collections.abc import Iterable
from typing import Any

import torch

from torch_cann._refused import refused
from torch_cann.npu._device import get_device_properties
from torch_cann.npu._utils import checked_device_index
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "CubeMathType",
    "finalize_dump",
    "get_device_limit",
    "get_mm_bmm_format_nd",
    "get_stream_limit",
    "init_dump",
    "is_jit_compile_false",
    "reset_stream_limit",
    "set_aoe",
    "set_compile_mode",
    "set_device_limit",
    "set_dump",
    "set_mm_bmm_format_nd",
    "set_option",
    "set_stream_limit",
]

_SWITCH = ("enable", "disable")
# Name -> allowed values; None: any text. Names and values are those of torch_npu.npu.set_option.
_OPTIONS: dict[str, Iterable[str] | None] = {
    "ACL_OP_SELECT_IMPL_MODE": ("high_precision", "high_performance"),
    "ACL_OPTYPELIST_FOR_IMPLMODE": None,
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
    "ACL_OP_COMPILER_CACHE_DIR": None,
    "ACL_OP_DEBUG_LEVEL": tuple("01234"),
    "ACL_DEBUG_DIR": None,
    "ACL_AICORE_NUM": tuple(map(str, range(1, 33))),
    "ACL_MODIFY_MIXLIST": None,
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ALLOW_CONV_HF32": _SWITCH,
    "ALLOW_INTERNAL_FORMAT": _SWITCH,
    "ALLOW_MATMUL_HF32": _SWITCH,
    "FORCE_ACLNN_OP_LIST": None,
    "MM_BMM_ND_ENABLE": _SWITCH,
    "NPU_FUZZY_COMPILE_BLACKLIST": None,
    "deterministic": tuple("01"),
    "jitCompile": _SWITCH,
}
_values = {"ALLOW_INTERNAL_FORMAT": "enable", "jitCompile": "disable", "MM_BMM_ND_ENABLE": "enable"}


def set_option(option: dict[str, Any]) -> None:
    """Sets several options, or none if one is wrong: ValueError names the unknown option or the value not allowed."""
    if not isinstance(option, dict):
        raise TypeError(
            f"npu option must be a dict of names and values, but got {type(option).__name__}" + pta_error(ErrCode.TYPE)
        )
    checked = {}
    for name, value in option.items():
        if name not in _OPTIONS:
            raise ValueError(
                f"invalid npu option name: {name!r}, expected one of {', '.join(_OPTIONS)}" + pta_error(ErrCode.VALUE)
            )
        allowed = _OPTIONS[name]
        if allowed is not None and str(value) not in allowed:
            raise ValueError(
                f"invalid value {value!r} of npu option {name}, expected one of {', '.join(allowed)}"
                + pta_error(ErrCode.VALUE)
            )
        checked[name] = str(value)
    _values.update(checked)


def _is_enabled(name: str, default: bool = False) -> bool:
    return _values.get(name, _SWITCH[not default]) == "enable"


def _switch(name: str, enabled: Any) -> None:
    if not isinstance(enabled, bool):
        raise TypeError(
            f"{name} must be True or False, but got {enabled!r} of type {type(enabled).__name__}"
            + pta_error(ErrCode.TYPE)
        )
    set_option({name: _SWITCH[not enabled]})


def set_compile_mode(jit_compile: bool = False) -> None:
    """Whether kernels are compiled online for each shape. Nothing is compiled here."""
    _switch("jitCompile", jit_compile)


def is_jit_compile_false() -> bool:
    return not _is_enabled("jitCompile")


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    """Whether matrix products keep the ND layout."""
    _switch("MM_BMM_ND_ENABLE", is_nd)


def get_mm_bmm_format_nd() -> bool:
    return _is_enabled("MM_BMM_ND_ENABLE", default=True)


class _Switches:
    """Attributes that are options: reading and assigning go to the table above, other names raise AttributeError."""

    __slots__ = ("_name", "_options")

    def __init__(self, name: str, **options: tuple[str, bool]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_options", options)

    def _option(self, attribute: str) -> tuple[str, bool]:
        try:
            return self._options[attribute]
        except KeyError:
            known = ", ".join(self._options)
            raise AttributeError(f"torch.npu.{self._name} has no switch {attribute!r}, only {known}") from None

    def __getattr__(self, attribute: str) -> bool:
        return _is_enabled(*self._option(attribute))

    def __setattr__(self, attribute: str, value: bool) -> None:
        _switch(self._option(attribute)[0], value)


class CubeMathType(enum.IntEnum):
    """Precision in which hardware may compute a product, in the numbers of CANN's cubeMathType."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


class _MatmulSwitches(_Switches):
    """The same, with ``cube_math_type``: a CubeMathType that is kept, and changes nothing in the simulated kernels."""

    __slots__ = ("_cube_math_type",)

    @property
    def cube_math_type(self) -> CubeMathType:
        return self._cube_math_type

    def __setattr__(self, attribute: str, value: Any) -> None:
        if attribute == "cube_math_type":
            object.__setattr__(self, "_cube_math_type", CubeMathType(value))
        else:
            super().__setattr__(attribute, value)


# HF32 rounds the inputs of fp32 products on hardware; products here stay in full fp32 either way.
matmul = _MatmulSwitches("matmul", allow_hf32=("ALLOW_MATMUL_HF32", False))
matmul.cube_math_type = CubeMathType.KEEP_DTYPE
conv = _Switches("conv", allow_hf32=("ALLOW_CONV_HF32", True))
config = _Switches("config", allow_internal_format=("ALLOW_INTERNAL_FORMAT", True))


globals().update(refused(__name__))


_device_limits: dict[int, dict[str, int]] = {}


def _checked_limits(index: int, limits: dict[str, int], cube_num: int, vector_num: int) -> dict[str, int]:
    """``limits`` with the numbers asked for, -1 for none. Raises ValueError for more cores than the card has."""
    properties = get_device_properties(index)
    for kind, asked in (("cube_core_num", cube_num), ("vector_core_num", vector_num)):
        there = getattr(properties, kind)
        if asked != -1 and not 1 <= asked <= there:
            raise ValueError(
                f"{kind} must be from 1 to {there}, the cores of npu:{index}, but got {asked}"
                + pta_error(ErrCode.VALUE)
            )
        limits = limits if asked == -1 else {**limits, kind: asked}
    return limits


def set_device_limit(device: Any, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limits the cores of a card that kernels may use, once per card; -1 leaves a number as it is."""
    index = checked_device_index(device)
    if index in _device_limits:
        raise RuntimeError(
            f"the core limits of npu:{index} are set already and can be set only once" + pta_error(ErrCode.PARAM)
        )
    _device_limits[index] = _checked_limits(index, get_device_limit(index), cube_num, vector_num)


def get_device_limit(device: Any) -> dict[str, int]:
    """Cores of a card that kernels may use: {"cube_core_num": ..., "vector_core_num": ...}."""
    index = checked_device_index(device)
    if index in _device_limits:
        return dict(_device_limits[index])
    properties = get_device_properties(index)
    return {"cube_core_num": properties.cube_core_num, "vector_core_num": properties.vector_core_num}


_stream_limits: dict[torch.Stream, dict[str, int]] = {}


def set_stream_limit(stream: torch.Stream, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limits the cores that kernels in ``stream`` may use; -1 leaves a number as it is."""
    _stream_limits[stream] = _checked_limits(stream.device_index, get_stream_limit(stream), cube_num, vector_num)


def reset_stream_limit(stream: torch.Stream) -> None:
    """Lets the stream use all the cores of its card again."""
    _stream_limits.pop(stream, None)


def get_stream_limit(stream: torch.Stream) -> dict[str, int]:
    """{"cube_core_num": ..., "vector_core_num": ...}; the card's own unless set_stream_limit() was called."""
    return dict(_stream_limits.get(stream) or get_device_limit(stream.device_index))
