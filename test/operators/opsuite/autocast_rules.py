"""What autocast promises for an operator on an accelerator, by OpInfo name.

The lists are PyTorch's for accelerators (ATen/autocast_mode.h); Ascend's package takes them over. Operators in neither
list run in whatever dtypes they are given.
"""

from __future__ import annotations

from typing import Any

import torch

from .cases import Case

_LOWER_PRECISION = frozenset(
    """
    nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
    nn.functional.conv_transpose2d nn.functional.conv_transpose3d nn.functional.prelu nn.functional.linear
    nn.functional.scaled_dot_product_attention addmm addmv addr addbmm baddbmm bmm mm mv matmul __rmatmul__ einsum
    linalg.vecdot linalg.multi_dot
    """.split()
)

_FLOAT32 = frozenset(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan nn.functional.softplus
    nn.functional.layer_norm native_layer_norm nn.functional.rms_norm nn.functional.group_norm
    nn.functional.cosine_similarity nn.functional.poisson_nll_loss nn.functional.cosine_embedding_loss
    nn.functional.nll_loss nn.functional.hinge_embedding_loss nn.functional.kl_div nn.functional.l1_loss
    nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.mse_loss nn.functional.margin_ranking_loss
    nn.functional.multilabel_margin_loss nn.functional.soft_margin_loss nn.functional.triplet_margin_loss
    nn.functional.multi_margin_loss nn.functional.binary_cross_entropy_with_logits dist nn.functional.pdist cdist
    renorm logsumexp prod softmax log_softmax cumprod cumsum linalg.vector_norm linalg.matrix_norm sum
    """.split()
)

_REFUSED = frozenset({"nn.functional.binary_cross_entropy"})


def is_refused(case: Case) -> bool:
    """Whether the operator must raise RuntimeError under autocast."""
    return case.op in _REFUSED


def promised_dtype(case: Case, sample: Any, autocast_dtype: torch.dtype) -> torch.dtype | None:
    """The dtype every floating-point output must have, or None where autocast promises nothing."""
    if case.variant or "dtype" in sample.kwargs:
        return None
    if case.op in _LOWER_PRECISION:
        return autocast_dtype
    return torch.float32 if case.op in _FLOAT32 else None
