"""The operators training spends its calls on; CI runs all of them in float32 each time."""

from __future__ import annotations

from .cases import Case, all_cases

_NAMES = """
add sub mul div.no_rounding_mode true_divide rsub neg abs sign pow square sqrt rsqrt reciprocal exp log log1p log2
sin cos tanh sigmoid erf clamp clamp_min clamp_max maximum minimum fmod remainder floor round.decimals_0 lerp addcmul
addcdiv eq ne lt le gt ge isnan isinf isfinite logical_and logical_not where masked_fill nan_to_num
mm bmm addmm addmv baddbmm matmul mv dot outer einsum tensordot nn.functional.linear nn.functional.bilinear
sum mean var var_mean std prod amax amin max.reduction_with_dim min.reduction_with_dim argmax argmin any all norm
linalg.vector_norm linalg.norm cumsum cumprod logsumexp softmax log_softmax topk sort argsort median
view reshape permute transpose t unsqueeze squeeze expand flatten select slice narrow split split_with_sizes chunk
unbind unfold flip roll repeat repeat_interleave tile movedim diagonal as_strided contiguous cat stack hstack vstack
gather scatter scatter_add index_select index_add index_copy index_fill index_put __getitem__ masked_select
masked_scatter take_along_dim nonzero searchsorted tril triu arange linspace zeros ones full zeros_like
ones_like full_like new_zeros new_ones new_full empty_like eye clone to fill zero_ float half bfloat16 long bool
nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.leaky_relu nn.functional.elu nn.functional.glu
nn.functional.softplus nn.functional.hardswish nn.functional.mish nn.functional.logsigmoid
nn.functional.layer_norm nn.functional.rms_norm nn.functional.group_norm nn.functional.batch_norm
nn.functional.instance_norm native_layer_norm native_batch_norm nn.functional.normalize
nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose2d
nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.interpolate.nearest
nn.functional.interpolate.bilinear nn.functional.pad.constant nn.functional.pixel_shuffle nn.functional.unfold
nn.functional.embedding nn.functional.embedding_bag nn.functional.scaled_dot_product_attention
nn.functional.dropout nn.functional.cross_entropy nn.functional.nll_loss nn.functional.mse_loss nn.functional.l1_loss
nn.functional.smooth_l1_loss nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
nn.functional.kl_div nn.functional.cosine_similarity normal uniform bernoulli multinomial randn randint
_foreach_add _foreach_mul _foreach_addcmul _foreach_addcdiv _foreach_lerp _foreach_sqrt _foreach_norm _foreach_copy
""".split()


def hot_cases() -> list[Case]:
    """The float32 case of every hot operator; ValueError if the installed torch knows one of them no longer."""
    by_name = {(f"{case.op}.{case.variant}" if case.variant else case.op): case for case in _float32_cases()}
    unknown = [name for name in _NAMES if name not in by_name]
    if unknown:
        raise ValueError(f"not in the OpInfo database with float32: {', '.join(unknown)}")
    return [by_name[name] for name in _NAMES]


def _float32_cases() -> list[Case]:
    return [case for case in all_cases() if case.dtype == "float32"]
