"""Attributes of the package torch_npu that are looked up when asked for: operators, dtypes, submodules."""

import importlib
import importlib.util

import torch


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(f"module 'torch_npu' has no attribute '{name}'")
    for namespace in (torch.ops.npu, torch.ops.atb):
        operator = getattr(namespace, name, None)
        if operator is not None:
            return operator
    if isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    if importlib.util.find_spec(f"torch_cann.{name}") is not None:
        return importlib.import_module(f"torch_cann.{name}")
    raise AttributeError(f"module 'torch_npu' has no attribute '{name}'")
