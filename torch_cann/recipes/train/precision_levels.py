"""What the levels O0 to O3 do to a model: which parameters become 16-bit, which modules compute in float32."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.loss import _Loss

LEVELS = {
    "O0": "float32 throughout",
    "O1": "float32 weights, autocast",
    "O2": "16-bit weights with float32 masters, autocast, norms in float32",
    "O3": "16-bit throughout, without masters and without loss scaling",
}

# Sums over many elements, exponentials and statistics: 16 bits lose or overflow them.
SENSITIVE_TYPES = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.Softmax, nn.LogSoftmax, _Loss)


def sensitive_modules(model: nn.Module, level: str, keep_fp32: Iterable[Any]) -> dict[str, nn.Module]:
    """The modules that stay float32, by name: those of ``keep_fp32`` and, below O3, of SENSITIVE_TYPES.

    Args:
        keep_fp32: types of modules, or patterns of their names with * and ?.

    Raises:
        ValueError: if an entry of keep_fp32 matches no module.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    types = () if level == "O3" else SENSITIVE_TYPES
    chosen = {name: module for name, module in modules.items() if isinstance(module, types)}
    for entry in keep_fp32:
        if isinstance(entry, str):
            found = {name: module for name, module in modules.items() if fnmatchcase(name, entry)}
        elif isinstance(entry, type):
            found = {name: module for name, module in modules.items() if isinstance(module, entry)}
        else:
            raise TypeError(f"keep_fp32 takes types of modules and patterns of names, but got {entry!r}")
        if not found:
            some = ", ".join(list(modules)[:8]) + (", ..." if len(modules) > 8 else "")
            raise ValueError(f"keep_fp32: {entry!r} matches no module; there are {some}")
        chosen.update(found)
    return chosen


def parameters_to_cast(model: nn.Module, kept: Iterable[nn.Module]) -> list[nn.Parameter]:
    """The float32 parameters of ``model`` that no module of ``kept``, or inside one, owns."""
    held = {id(p) for module in kept for p in module.parameters()}
    return [p for p in model.parameters() if p.dtype == torch.float32 and id(p) not in held]


def cast_buffers(model: nn.Module, kept: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Casts the float32 buffers that no module of ``kept`` has, in place."""
    held = {id(b) for module in kept for b in module.buffers()}
    for buffer in model.buffers():
        if buffer.dtype == torch.float32 and id(buffer) not in held:
            buffer.data = buffer.data.to(dtype)


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """``value`` with every float tensor of another dtype cast, inside lists, tuples and dictionaries too."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != dtype else value
    if type(value) is dict:
        return {key: cast_floats(item, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(cast_floats(item, dtype) for item in value)
    return value


def compute_inside(module: nn.Module, make_context: Callable[[], AbstractContextManager], cast: Any = None) -> None:
    """Makes forward() of ``module`` run inside ``make_context()``, on inputs cast to dtype ``cast`` if given.

    Done by hooks, which activation checkpointing, deepcopy and DDP know how to deal with. Backward runs outside.
    """
    entered: list[AbstractContextManager] = []

    def before(_module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        context = make_context()
        context.__enter__()
        entered.append(context)
        return (args, kwargs) if cast is None else (cast_floats(args, cast), cast_floats(kwargs, cast))

    def after(_module: nn.Module, _args: tuple, _output: Any) -> None:
        if entered:  # empty when an earlier hook raised
            entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


def compute_in_float32(module: nn.Module, device_type: str, output_dtype: torch.dtype | None = None) -> None:
    """Makes ``module`` compute in float32, outside autocast; its outputs become ``output_dtype`` if given."""
    compute_inside(module, lambda: torch.autocast(device_type, enabled=False), torch.float32)
    if output_dtype is not None:
        module.register_forward_hook(lambda _module, _args, output: cast_floats(output, output_dtype))


def compute_in_16_bits(model: nn.Module, dtype: torch.dtype) -> None:
    """O3: the whole model's inputs are cast to ``dtype`` and its outputs back to float32, for the loss."""
    model.register_forward_pre_hook(
        lambda _module, args, kwargs: (cast_floats(args, dtype), cast_floats(kwargs, dtype)), with_kwargs=True
    )
    model.register_forward_hook(lambda _module, _args, output: cast_floats(output, torch.float32))
