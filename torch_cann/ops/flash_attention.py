"""ATen's flash attention of packed sequences, which torch.nn.attention.varlen calls, by npu_fusion_attention.

PyTorch has kernels for it on CUDA only, so neither a CPU kernel nor a decomposition could run in its place.
"""

from functools import cache
from typing import Any

import torch

_NO_MASK, _CAUSAL, _BAND = 0, 3, 4  # sparse modes; both masks are aligned to the ends of the sequences
_ALL = 2**31 - 1  # tokens of a window that is open on one side


@cache
def _mask(device: torch.device) -> torch.Tensor:
    """The mask of 2048 x 2048 from which the sparse modes 3 and 4 derive all others."""
    return torch.triu(torch.ones(2048, 2048, dtype=torch.bool, device=device), 1)


def _masking(device: torch.device, is_causal: bool, left: int | None, right: int | None) -> dict[str, Any]:
    left, right = -1 if left is None else left, -1 if right is None else right
    if is_causal:
        right = 0
    if left < 0 and right < 0:
        return {"sparse_mode": _NO_MASK}
    if left < 0 and right == 0:
        return {"sparse_mode": _CAUSAL, "atten_mask": _mask(device)}
    window = {"pre_tockens": _ALL if left < 0 else left, "next_tockens": _ALL if right < 0 else right}
    return {"sparse_mode": _BAND, "atten_mask": _mask(device), **window}


def _ends(cum_seq_q: torch.Tensor | None, cum_seq_k: torch.Tensor | None) -> dict[str, list[int]]:
    from torch_cann._refused import not_implemented

    if cum_seq_q is None or cum_seq_k is None:
        raise not_implemented(
            "aten::_flash_attention_forward without cum_seq_q", "scaled_dot_product_attention does it"
        )
    return {"actual_seq_qlen": cum_seq_q[1:].tolist(), "actual_seq_kvlen": cum_seq_k[1:].tolist()}


def _lengths(ends: list[int]) -> list[int]:
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _by_head(statistic: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """(tokens, heads, 8) of npu_fusion_attention, where each sequence's numbers lie head by head -> (heads, tokens)."""
    heads = statistic.size(1)
    sequences = statistic.reshape(-1, 8)[:, 0].split([heads * length for length in _lengths(ends)])
    return torch.cat([sequence.view(heads, -1) for sequence in sequences], 1)


def _by_sequence(statistic: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """The way back from _by_head."""
    numbers = torch.cat([sequence.reshape(-1) for sequence in statistic.split(_lengths(ends), 1)])
    return numbers[:, None].repeat(1, 8).view(statistic.size(1), statistic.size(0), 8)


def _refuse(**given: Any) -> None:
    from torch_cann._refused import not_implemented

    names = [name for name, value in given.items() if value]
    if names:
        raise not_implemented(f"flash attention with {', '.join(names)}", "its kernels are for CUDA")


def _forward(
    query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None,
    window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None,
):  # fmt: skip
    """Of (tokens, heads, size); the log-sum-exp is (heads, tokens), float32."""
    _refuse(
        dropout_p=dropout_p, return_debug_mask=return_debug_mask, seqused_k=seqused_k is not None,
        alibi_slopes=alibi_slopes is not None, block_table=block_table is not None,
    )  # fmt: skip
    ends = _ends(cum_seq_q, cum_seq_k)
    out, largest, total, *_ = torch.ops.npu.npu_fusion_attention(
        query, key, value, query.size(1), "TND", scale=query.size(-1) ** -0.5 if scale is None else scale,
        **ends, **_masking(query.device, is_causal, window_size_left, window_size_right),
    )  # fmt: skip
    logsumexp = _by_head(largest + total.log(), ends["actual_seq_qlen"])
    empty = query.new_empty(0)
    return out, logsumexp, query.new_empty(2, dtype=torch.uint64), empty, empty.clone()


def _backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state,
    unused, *, scale=None, window_size_left=None, window_size_right=None,
):  # fmt: skip
    _refuse(dropout_p=dropout_p)
    # exp(x - largest) / total with the log-sum-exp in place of the largest and 1 in place of the total.
    ends = _ends(cum_seq_q, cum_seq_k)
    largest = _by_sequence(logsumexp, ends["actual_seq_qlen"])
    grads = torch.ops.npu.npu_fusion_attention_grad(
        query, key, value, grad_out.contiguous(), query.size(1), "TND", softmax_max=largest,
        softmax_sum=torch.ones_like(largest), attention_in=out,
        scale_value=query.size(-1) ** -0.5 if scale is None else scale,
        **ends, **_masking(query.device, is_causal, window_size_left, window_size_right),
    )  # fmt: skip
    return grads[:3]


_library = None  # keeps the registrations alive


def register() -> None:
    global _library
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("_flash_attention_forward", _forward, "PrivateUse1")
    _library.impl("_flash_attention_backward", _backward, "PrivateUse1")
