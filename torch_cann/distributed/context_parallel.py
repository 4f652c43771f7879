"""Context parallelism on npu: lets torch.distributed.tensor.experimental.context_parallel split attention.

PyTorch sends the attention of tensors that are sharded along their positions round a ring, but knows the CUDA kernels
only. The npu's kernel has the same mathematics (output and logsumexp forward, both of them backward), so that PyTorch's
ring serves it once told.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention

__all__ = ["npu_disable_cp_dtensor_dispatcher", "npu_enable_cp_dtensor_dispatcher"]

_POSITIONS = 2  # of (batch, heads, positions, features)
_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _check(query: DTensor, attn_mask: Tensor | None) -> None:
    if query.placements != (Shard(_POSITIONS),):
        raise NotImplementedError(
            "context parallelism: attention takes tensors sharded along their positions, Shard(2), over a mesh of one "
            f"dimension, but these are placed {query.placements}"
        )
    if attn_mask is not None:
        raise NotImplementedError("context parallelism: attention takes is_causal, but no attn_mask")


def _like(local: Tensor, whole: DTensor) -> DTensor:
    return DTensor.from_local(local, whole.device_mesh, whole.placements, run_check=False)


def _forward(
    query: DTensor,
    key: DTensor,
    value: DTensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[DTensor, ...]:
    _check(query, attn_mask)
    results = _attention._templated_ring_attention(
        query.device_mesh.get_group(), _POSITIONS, _FORWARD, query.to_local(), key.to_local(), value.to_local(),
        is_causal=is_causal, dropout_p=dropout_p, scale=scale,
    )  # fmt: skip
    return tuple(_like(result, query) for result in results)


def _backward(
    grad_out: DTensor,
    query: DTensor,
    key: DTensor,
    value: DTensor,
    out: DTensor,
    logsumexp: DTensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[DTensor, ...]:
    _check(query, attn_mask)
    local = [tensor.to_local() for tensor in (grad_out, query, key, value, out, logsumexp)]
    results = _attention._templated_ring_attention_backward(
        query.device_mesh.get_group(), _POSITIONS, _BACKWARD, local[0], "grad_out", *local[1:],
        is_causal=is_causal, dropout_p=dropout_p, scale=scale,
    )  # fmt: skip
    return tuple(_like(result, query) for result in results)


_HANDLERS = {
    _FORWARD: lambda operator, args, kwargs: _forward(*args, **kwargs),
    _BACKWARD: lambda operator, args, kwargs: _backward(*args, **kwargs),
}


def npu_enable_cp_dtensor_dispatcher() -> None:
    """From here on, context_parallel() and DTensors sharded along positions have attention on npu.

    Call it once, on every rank, before the first context_parallel(). Causal attention without a mask is what the ring
    can do; PyTorch's load balancing must be off for attention that is not causal.
    """
    _attention.custom_ops.update(_HANDLERS)
    DTensor._op_dispatcher._custom_op_handlers = {**DTensor._op_dispatcher._custom_op_handlers, **_HANDLERS}


def npu_disable_cp_dtensor_dispatcher() -> None:
    """Undoes npu_enable_cp_dtensor_dispatcher()."""
    for registry in (_attention.custom_ops, DTensor._op_dispatcher._custom_op_handlers):
        for operator in _HANDLERS:
            registry.pop(operator, None)
