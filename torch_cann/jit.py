"""torch_npu.jit: fusion of operators in scripted modules."""

import torch

__all__ = ["optimize"]


def fast_gelu_pass(jit_mod: torch.jit.ScriptModule) -> None:
    """Would make x * sigmoid(1.702 x) one kernel. Kernels here are not fused, so the module stays as it is."""
    if not isinstance(jit_mod, torch.jit.ScriptModule):
        raise TypeError(f"expected a torch.jit.ScriptModule, but got {type(jit_mod).__name__}")


def optimize(jit_mod: torch.jit.ScriptModule) -> None:
    """Applies every fusion pass."""
    fast_gelu_pass(jit_mod)
