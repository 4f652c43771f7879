"""Bad input: the error says what was asked and what is."""

import pytest
import torch
import torch_npu


def x(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device="npu")


def attention(*tensors, **options):
    return torch_npu.npu_fusion_attention(*tensors, options.pop("heads", 4), options.pop("layout", "BNSD"), **options)


def delta_rule(**changed):
    given = {"query": x(5, 2, 4), "key": x(5, 2, 4), "value": x(5, 4, 3), "state": x(6, 4, 3, 4)}
    numbers = {"actual_seq_lengths": [2, 3], "ssm_state_indices": [0, 1, 2, 3, 4], "num_accepted_tokens": [1, 2]}
    given |= {name: torch.tensor(changed.get(name, of), dtype=torch.int32, device="npu") for name, of in numbers.items()}
    return torch_npu.npu_recurrent_gated_delta_rule(**given | {n: t for n, t in changed.items() if torch.is_tensor(t)})


def layer_norm_grad(**changed):
    given = {"grad": x(3, 8), "mean": x(3, 1), "rstd": x(3, 1)} | changed
    return torch.ops.npu.npu_layernorm_grad(given["grad"], x(3, 8), [8], given["mean"], given["rstd"], x(8), x(8))


def attention_grad(**changed):
    given = {"dy": x(2, 4, 5, 8), "attention_in": x(2, 4, 5, 8), "softmax_max": x(2, 4, 5, 8), "softmax_sum": x(2, 4, 5, 8)}
    given |= changed
    dy = given.pop("dy")
    return torch_npu.npu_fusion_attention_grad(x(2, 4, 5, 8), x(2, 4, 7, 8), x(2, 4, 7, 8), dy, 4, "BNSD", **given)


def infer_attention(**changed):
    given = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": "BNSD"} | changed
    return torch_npu.npu_fused_infer_attention_score(x(2, 4, 5, 8), x(2, 2, 7, 8), x(2, 2, 7, 8), **given)


MASK = x(2048, 2048, dtype=torch.bool)
ERRORS = [
    (lambda: torch_npu.npu_swiglu(x(3, 5)), RuntimeError, r"dimension 1 must be even, but input has sizes \[3, 5\]"),
    (lambda: torch_npu.npu_swiglu(x(3, 4), 2), IndexError, "Dimension out of range"),
    (lambda: torch_npu.npu_rms_norm(x(3, 4), x(3)), RuntimeError, r"sizes of input's last dimensions, \[4\], but has sizes \[3\]"),
    (lambda: torch_npu.npu_rms_norm(x(3, 4), torch.ones(4)), RuntimeError, "same device, but found at least two devices, npu:0 and cpu"),
    (lambda: torch_npu.npu_rms_norm(x(3, 4), torch.ones(4, device="npu:1")), RuntimeError, "npu:0 and npu:1"),
    (lambda: torch_npu.npu_rotary_mul(x(2, 4), x(2, 4), x(2, 4), "third"), RuntimeError, "'half' or 'interleave', but got 'third'"),
    (lambda: torch_npu.npu_rotary_mul(x(2, 5), x(2, 5), x(2, 5)), RuntimeError, "must be even"),
    (lambda: torch.ops.npu.npu_rotary_mul_backward(x(2, 5), x(2, 5), x(2, 5), x(2, 5)), RuntimeError, "must be even"),
    (lambda: torch_npu.npu_geglu(x(4), -1, 2), RuntimeError, r"approximate must be 0 \(erf\) or 1 \(tanh\), but got 2"),
    (lambda: torch_npu.npu_group_norm_silu(x(2, 5, 3), None, None, 2), RuntimeError, "the 5 channels of input must be divisible"),
    (lambda: torch_npu.npu_cross_entropy_loss(x(2, 3), x(2).long(), None, "middle"), RuntimeError, "but got 'middle'"),
    (lambda: torch_npu.npu_cross_entropy_loss(x(2, 3), x(2).long(), return_zloss=True), NotImplementedError, "z loss"),
    (lambda: torch_npu.npu_slice(x(2, 3), [0], [1]), RuntimeError, "one number for each of the 2 dimensions"),
    (lambda: torch_npu.npu_pad(x(2, 3), [1, 1]), RuntimeError, "two numbers for each of the 2 dimensions"),
    (lambda: torch_npu.npu_moe_token_permute(x(4, 2), x(3).long()), RuntimeError, r"but have \[4, 2\] and \[3\]"),
    (lambda: torch_npu.npu_moe_token_permute(x(4, 2), x(4).long(), None, True), NotImplementedError, "padded_mode"),
    (lambda: torch_npu.npu_moe_gating_top_k(x(4, 8), 9), RuntimeError, "number of experts, 8, but is 9"),
    (lambda: torch_npu.npu_grouped_matmul([x(4, 2)], [x(2, 3)], group_type=0), RuntimeError, "needs group_list"),
    (lambda: torch_npu.npu_grouped_matmul([x(4, 2)], [x(2, 3)], group_type=1), RuntimeError, "but got 1"),
    (lambda: torch_npu.npu_grouped_matmul([x(4, 2)], [x(1, 2, 3)], group_type=0, split_item=3, group_list=x(1).long() * 5),
     RuntimeError, "group 0 of group_list has 5 rows from 0 on, but x has 4"),
    (lambda: torch_npu.scatter_update(x(2, 4, 3), x(2).long() * 4, x(2, 1, 3), 1), RuntimeError, "are outside of input's 4"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, layout="NSD"), RuntimeError, "BSH, SBH, BSND, BNSD and TND, but got 'NSD'"),
    (lambda: attention(*[x(2, 3, 8)] * 3), RuntimeError, "must have 4 dimensions"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, heads=3), RuntimeError, "query has 4 heads, but head_num is 3"),
    (lambda: attention(x(2, 4, 3, 8), x(2, 3, 3, 8), x(2, 3, 3, 8)), RuntimeError, "must be a multiple of the 3 of key"),
    (lambda: attention(x(2, 4, 3, 8), x(2, 4, 5, 8), x(2, 4, 3, 8)), RuntimeError, "same length, but have 5 and 3"),
    (lambda: attention(x(2, 4, 3, 8), x(2, 4, 3, 8), x(2, 4, 3, 8, dtype=torch.half)), RuntimeError, "of one floating type"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, sparse_mode=9), RuntimeError, "from 0 to 8, but got 9"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, sparse_mode=2), RuntimeError, "sparse_mode 2 needs atten_mask"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, sparse_mode=3, atten_mask=x(3, 3, dtype=torch.bool)), RuntimeError, r"compressed mask \(2048, 2048\)"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, sparse_mode=7, atten_mask=MASK), RuntimeError, "input_layout TND only"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, atten_mask=x(3, 4, dtype=torch.bool)), RuntimeError, r"but has sizes \[3, 4\]"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, atten_mask=x(3, 3)), RuntimeError, "must be bool or uint8"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, keep_prob=0.0), RuntimeError, "above 0 and at most 1, but got 0"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, pse=x(2, 4, 3, 9)), RuntimeError, r"pse must be .* but has sizes \[2, 4, 3, 9\]"),
    (lambda: attention(*[x(2, 4, 3, 8)] * 3, padding_mask=x(2)), NotImplementedError, "use atten_mask"),
    (lambda: attention(*[x(6, 4, 8)] * 3, layout="TND"), RuntimeError, "needs actual_seq_qlen and actual_seq_kvlen"),
    (lambda: attention(*[x(6, 4, 8)] * 3, layout="TND", actual_seq_qlen=[4, 2], actual_seq_kvlen=[2, 6]), RuntimeError, "falls from 4 to 2"),
    (lambda: attention(*[x(6, 4, 8)] * 3, layout="TND", actual_seq_qlen=[9], actual_seq_kvlen=[6]), RuntimeError, "ends at 9"),
    (lambda: attention_grad(dy=x(2, 4, 5, 9)), RuntimeError, r"forward's result, \[2, 4, 5, 8\], but have \[2, 4, 5, 9\]"),
    (lambda: attention_grad(attention_in=x(2, 1, 5, 8)), RuntimeError, "sizes of the forward's result"),
    (lambda: attention_grad(softmax_max=x(2, 1, 5, 8)), RuntimeError, "softmax_max and softmax_sum must have the sizes"),
    (lambda: infer_attention(num_heads=0), RuntimeError, "is not of 0 heads"),
    (lambda: infer_attention(atten_mask=x(2, 0, 5, 7, dtype=torch.bool)), RuntimeError, r"atten_mask must be .* \[2, 0, 5, 7\]"),
    (lambda: infer_attention(atten_mask=x(2, 1, 0, 7, dtype=torch.bool)), RuntimeError, r"atten_mask must be .* \[2, 1, 0, 7\]"),
    (lambda: attention(*[x(6, 4, 8)] * 3, layout="TND", actual_seq_qlen=[2, 6], actual_seq_kvlen=[2, 6], sparse_mode=1, atten_mask=x(2, 2, dtype=torch.bool)),
     RuntimeError, r"atten_mask must be .* \[2, 2\] for batch entry 1"),
    (lambda: torch_npu.npu_fusion_attention_v2(*[x(2, 4, 3, 8)] * 3, 4, "BNSD", pse=x(4), pse_type=2, q_start_idx=[1, 2]), RuntimeError, "must have one number"),
    (lambda: torch_npu.npu_fused_infer_attention_score(x(1, 1, 8), x(3, 0, 8), x(3, 0, 8), num_heads=1, input_layout="BSH",
                                                       block_table=x(1, 3).int(), actual_seq_lengths_kv=[3]), RuntimeError, "rows of a paged cache"),
    (lambda: torch.ops.npu.npu_group_norm_swish_grad(x(2, 6, 3), x(2, 6, 3), 0, x(6), x(6), x(2, 2), x(2, 2), [True] * 3), RuntimeError, "0 groups"),
    (lambda: torch_npu.npu_rms_norm(x(3, 4).to(torch.complex64), x(4)), RuntimeError, "floating type, but is ComplexFloat"),
    (lambda: torch_npu.npu_swiglu(x(3, 4).long()), RuntimeError, "npu_swiglu: input must be of a floating type, but is Long"),
    (lambda: torch_npu.npu_rotary_mul(x(2, 4).bool(), x(2, 4), x(2, 4)), RuntimeError, "floating type, but is Bool"),
    (lambda: torch_npu.npu_add_layer_norm(x(1, 4), x(3, 4), x(4), x(4)), RuntimeError, r"same sizes, but have \[1, 4\] and \[3, 4\]"),
    (lambda: torch_npu.npu_group_norm_silu(x(2, 6, 3), x(1), None, 2), RuntimeError, r"one value for each of the 6 channels.* \[1\]"),
    (lambda: layer_norm_grad(grad=x(0, 8)), RuntimeError, r"must have the sizes of input, \[3, 8\], but has \[0, 8\]"),
    (lambda: layer_norm_grad(mean=x(0)), RuntimeError, r"each of the 3 rows of input, but have sizes \[0\]"),
    (lambda: torch.ops.npu.npu_conv3d_backward(x(1, 2, 3, 3, 3), x(0, 2, 3, 3, 3), x(2, 2, 1, 1, 1), *[[1] * 3, [0] * 3, [1] * 3], 1, [True] * 3),
     RuntimeError, "of as many samples as input"),
    (lambda: torch_npu.npu_one_hot(x(2, 3).int(), 3), RuntimeError, "from -1 to 2, the dimensions of input, but got 3"),
    (lambda: torch.ops.npu.npu_confusion_transpose_backward(x(2, 3, 4), [0, 5, 1], [2, 3, 4], True), IndexError, "out of range"),
    (lambda: torch.ops.npu.npu_confusion_transpose_backward(x(2, 3, 4), [0, 1], [2, 3, 4], False), RuntimeError, "each of the 3 dimensions"),
    (lambda: torch_npu.npu_moe_token_permute_with_routing_map(x(6, 4), x(6, 0).bool(), drop_and_pad=True), RuntimeError, "needs experts"),
    (lambda: torch_npu.npu_moe_token_unpermute_with_routing_map(x(12, 4), x(12).int(), [6, 4], routing_map=x(0, 4).bool()),
     RuntimeError, r"the 6 tokens of restore_shape, but has sizes \[0, 4\]"),
    (lambda: delta_rule(key=x(5, 0, 4)), RuntimeError, "query and key must be"),
    (lambda: delta_rule(ssm_state_indices=[0, 1, 2, 3]), RuntimeError, "each of the 5 tokens, but has 4"),
    (lambda: delta_rule(ssm_state_indices=[0, 1, 2, 3, 6]), RuntimeError, "has 6, but state has 6 slots"),
    (lambda: delta_rule(num_accepted_tokens=[1, 2**30]), RuntimeError, "from 1 to the sequence's 3 tokens, but is 1073741824"),
    (lambda: delta_rule(actual_seq_lengths=[2, -1]), RuntimeError, "has -1 for sequence 1, where 3 of 5 tokens are left"),
    (lambda: torch_npu.npu_mrope(x(4).long(), x(4, 8), x(4, 8), x(9, 8), 8, cache_mode="no"), RuntimeError, "cache_mode only support default or interleave"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS, ids=range(len(ERRORS)))
def test_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_errors_carry_the_suffix_of_hardware():
    with pytest.raises(RuntimeError, match=r"\[ERROR\] .*ERR01001 OPS invalid parameter"):
        torch_npu.npu_swiglu(x(3, 5))


def test_cpu_tensors_are_refused():
    with pytest.raises(NotImplementedError, match="'npu::npu_swiglu' with arguments from the 'CPU' backend"):
        torch_npu.npu_swiglu(torch.ones(4))
