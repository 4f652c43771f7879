"""Cases of the operators that take tensors and give tensors; attention, formats and random numbers have files of their
own."""

from __future__ import annotations

import torch
from cases import Table, args, positive, rand

import references as R

F = torch.nn.functional
TABLE = Table()
add = TABLE.add
EXACT = (torch.float32,)


def ints(high: int, *sizes: int, dtype=torch.int64) -> torch.Tensor:
    return torch.randint(0, high, sizes, dtype=dtype)


# ---- Activations
for shape, dim in (((3, 8), -1), ((2, 6, 5), 1), ((0, 4), -1), ((7, 2), 1), ((2, 70), 1)):
    add("npu_swiglu", lambda s=shape, d=dim: args(rand(*s), d), R.swiglu, grad=(0,), name=f"{shape}-{dim}")
    add("npu_swiglu_backward",
        lambda s=shape, d=dim: args(rand(*(n // 2 if i == d % len(s) else n for i, n in enumerate(s))), rand(*s), d),
        lambda g, x, d: torch.autograd.functional.vjp(lambda t: R.swiglu(t, d), x, g)[1], name=f"{shape}-{dim}")
for approximate in (0, 1):
    for left in (False, True):
        add("npu_geglu", lambda a=approximate, l=left: args(rand(3, 8), -1, a, l), R.geglu, grad=(0,),
            name=f"{approximate}-{left}")
for op in ("fast_gelu", "npu_fast_gelu"):
    add(op, lambda: args(rand(3, 7)), R.fast_gelu, grad=(0,))
add("npu_fast_gelu_backward", lambda: args(rand(5), rand(5)),
    lambda g, x: torch.autograd.functional.vjp(R.fast_gelu, x, g)[1])
for kind in ("none", "tanh"):
    add("npu_gelu", lambda k=kind: args(rand(3, 7), approximate=k), F.gelu, grad=(0,), name=kind)
    add("npu_gelu_mul", lambda k=kind: args(rand(3, 8), approximate=k),
        lambda x, approximate: F.gelu(x.chunk(2, -1)[0], approximate=approximate) * x.chunk(2, -1)[1], name=kind)
    add("npu_gelu_backward", lambda k=kind: args(rand(5), rand(5), approximate=k),
        lambda g, x, approximate: torch.autograd.functional.vjp(lambda t: F.gelu(t, approximate=approximate), x, g)[1],
        name=kind)
add("npu_silu", lambda: args(rand(3, 5)), F.silu, grad=(0,))
add("npu_silu_", lambda: args(rand(3, 5)), F.silu)
add("npu_silu_backward", lambda: args(rand(5), rand(5), rand(5)),
    lambda g, x, y: torch.autograd.functional.vjp(F.silu, x, g)[1])
add("npu_mish", lambda: args(rand(3, 5)), F.mish, grad=(0,))
add("npu_mish_backward", lambda: args(rand(5), rand(5)),
    lambda g, x: torch.autograd.functional.vjp(F.mish, x, g)[1])
for interleaved in (True, False):
    add("npu_clipped_swiglu", lambda i=interleaved: args(5 * rand(4, 6), interleaved=i, limit=3.0),
        lambda x, **k: R.clipped_swiglu(x, **k), name=str(interleaved))

# ---- Norms
for x, gamma in (((3, 5, 8), (8,)), ((2, 3, 4), (3, 4)), ((1, 1), (1,)), ((0, 4), (4,)), ((5,), (5,))):
    add("npu_rms_norm", lambda x=x, g=gamma: args(rand(*x), positive(*g), 1e-5), R.rms_norm, grad=(0, 1), name=f"{x}")
    add("npu_gemma_rms_norm", lambda x=x, g=gamma: args(rand(*x), rand(*g)), R.gemma_rms_norm, name=f"{x}")
for op in ("npu_add_rms_norm", "npu_add_rms_norm_v2_functional"):
    add(op, lambda: args(rand(3, 8), rand(3, 8), positive(8)),
        lambda a, b, g: (*R.rms_norm(a + b, g), a + b), dtypes=(torch.float32,))
add("npu_add_rms_norm_cast", lambda: args(rand(3, 8), rand(3, 8), positive(8)),
    lambda a, b, g: (R.rms_norm(a + b, g)[0], *R.rms_norm(a + b, g), a + b), dtypes=(torch.float32,))
add("npu_add_rms_norm_v2", lambda: args(rand(3, 8), rand(3, 8), positive(8)),
    lambda a, b, g: R.rms_norm(a + b, g)[1], dtypes=(torch.float32,))
for extra in (False, True):
    add("npu_add_layer_norm", lambda e=extra: args(rand(2, 3, 8), rand(2, 3, 8), positive(8), rand(8), 1e-5, e),
        R.add_layer_norm, grad=(0, 1, 2, 3), outputs=(0, 3) if extra else (0,), name=str(extra))
add("npu_deep_norm", lambda: args(rand(2, 3, 8), rand(2, 3, 8), rand(8), positive(8), 0.7), R.deep_norm,
    grad=(0, 1, 2, 3), outputs=(2,))
add("npu_layer_norm_eval", lambda: args(rand(3, 8), [8], positive(8), rand(8), 1e-5), F.layer_norm)
for shape in ((3, 4), (2, 6, 3, 2), (2, 4, 5)):
    add("npu_group_norm_swish", lambda s=shape: args(rand(*s), 2, positive(s[1]), rand(s[1]), 1e-5, 1.5),
        R.group_norm_swish, grad=(0, 2, 3), name=f"{shape}")
    add("npu_group_norm_silu", lambda s=shape: args(rand(*s), positive(s[1]), rand(s[1]), 2, 1e-5),
        lambda x, w, b, g, e: (F.silu(R.group_norm(x, g, w, b, e)[0]), *R.group_norm(x, g, w, b, e)[1:]), name=f"{shape}")

for shape in ((4, 3), (2, 3, 5, 2)):
    add("batch_norm_reduce", lambda s=shape: args(rand(*s), 1e-5),
        lambda x, e: (x.transpose(0, 1).flatten(1).sum(1), x.transpose(0, 1).flatten(1).square().sum(1)), name=f"{shape}",
        dtypes=EXACT, factor=2)
for running in (False, True):
    add("batch_norm_gather_stats_update",
        lambda r=running: args(rand(2, 3), rand(4, 3), 20 + positive(4, 3), *((rand(3), positive(3)) if r else (None, None)), 0.1, 1e-5,
                               torch.tensor([4.0, 5, 6, 4]).double()),
        lambda x, s, q, mean, var, momentum, eps, n: (
            s.sum(0) / n.sum(), (q.sum(0) / n.sum() - (s.sum(0) / n.sum()).square() + eps).rsqrt()), name=str(running),
        dtypes=EXACT, factor=4)
add("npu_layernorm_grad",
    lambda: args(rand(3, 8), rand(3, 8), [8], rand(3, 1), positive(3, 1), positive(8), rand(8)),
    lambda *a: torch.ops.aten.native_layer_norm_backward(*a, [True] * 3), factor=4, dtypes=EXACT)

# ---- Rotary embeddings
for mode in ("half", "interleave"):
    for cos in ((1, 1, 6, 8), (2, 3, 6, 8), (1, 3, 1, 8), (1, 1, 1, 8)):
        add("npu_rotary_mul", lambda m=mode, c=cos: args(rand(2, 3, 6, 8), rand(*c), rand(*c), m), R.rotary_mul,
            grad=(0, 1, 2), name=f"{mode}-{cos}")
    add("npu_rotary_mul", lambda m=mode: args(rand(2, 3, 5, 70).transpose(1, 2), rand(1, 5, 1, 70), rand(1, 5, 1, 70), m),
        R.rotary_mul, grad=(0, 1, 2), name=f"{mode}-transposed")
    add("npu_rotary_mul_backward", lambda m=mode: args(rand(2, 4, 8), rand(2, 4, 8), rand(1, 4, 8), rand(1, 4, 8), m),
        lambda g, x, c, s, m: torch.autograd.functional.vjp(lambda *t: R.rotary_mul(*t, m), (x, c, s), g)[1], name=mode)
    add("npu_apply_rotary_pos_emb", lambda m=mode: args(rand(2, 3, 4, 8), rand(2, 3, 2, 8), rand(2, 3, 1, 8),
                                                       rand(2, 3, 1, 8), "BSND", m),
        lambda q, k, c, s, layout, m: (R.rotary_mul(q, c, s, m), R.rotary_mul(k, c, s, m)), name=mode)
    for cache_mode in ("default", "interleave"):
        add("npu_mrope", lambda m=mode, c=cache_mode: args(ints(9, 3, 5), rand(5, 32), rand(5, 16), rand(9, 12), 16,
                                                          mrope_section=[2, 2, 2], rotary_mode=m, cache_mode=c),
            R.mrope, name=f"{mode}-{cache_mode}")
    add("npu_mrope", lambda m=mode: args(ints(9, 5), rand(5, 32), rand(5, 16), rand(9, 16), 16, rotary_mode=m), R.mrope,
        name=f"{mode}-1d")
add("npu_rotary_mul", lambda: args(rand(2, 3, 6, 8), rand(1, 1, 6, 8), rand(1, 1, 6, 8), "half", rand(8, 8)),
    lambda x, c, s, mode, m: x * c + (x @ m) * s, grad=(0, 1, 2, 4), name="matrix", factor=4)
add("npu_interleave_rope", lambda: args(rand(2, 3, 1, 8), rand(2, 1, 1, 8), rand(2, 1, 1, 8)), R.interleave_rope)

# ---- Softmax and losses
add("npu_scaled_masked_softmax", lambda: args(rand(2, 3, 4, 4), torch.rand(2, 1, 4, 4) > 0.6, 0.3),
    R.scaled_masked_softmax, grad=(0,))
add("npu_scaled_masked_softmax", lambda: args(rand(2, 3, 4, 4), torch.zeros(4, 4, dtype=torch.bool), 0.3, True),
    R.scaled_masked_softmax, grad=(0,), name="triu")
add("npu_masked_softmax_with_rel_pos_bias", lambda: args(rand(2, 3, 2, 4, 4), rand(3, 1, 4, 4), rand(2, 4, 4), 0.5),
    lambda x, m, b, s: (x * s + m + b).softmax(-1))
add("npu_attn_softmax_", lambda: args(rand(3, 4, 4)), lambda x: x.softmax(-1))
add("npu_attn_softmax_backward_", lambda: args(rand(3, 4, 4).softmax(-1), rand(3, 4, 8), rand(3, 4, 8)),
    lambda p, g, v: p * (g @ v.mT - (p * (g @ v.mT)).sum(-1, keepdim=True)), factor=4)
add("npu_softmax_cross_entropy_with_logits", lambda: args(rand(5, 7), torch.rand(5, 7).double().softmax(1)),
    lambda x, y: -(y * x.log_softmax(1)).sum(1), dtypes=EXACT)
add("npu_softmax_cross_entropy_with_logits_backward",
    lambda: args(rand(5), rand(5, 7), torch.rand(5, 7).double().softmax(1)),
    lambda g, x, y: (x.softmax(1) - y) * g[:, None])
for reduction in ("none", "mean", "sum"):
    for options in ({}, {"label_smoothing": 0.2}, {"ignore_index": 3}):
        for weighted in (False, True):
            add("npu_cross_entropy_loss",
                lambda r=reduction, o=options, w=weighted: args(rand(8, 7), ints(7, 8), positive(7) if w else None, r, **o),
                R.cross_entropy, grad=(0,), name=f"{reduction}-{options}-{weighted}", factor=2)
for first, last in ((0, 7), (4, 9)):
    add("npu_fused_linear_online_max_sum",
        lambda f=first, e=last: args(rand(11, 5), rand(10, 5), ints(10, 11), f, e, True), R.linear_online_max_sum,
        name=f"{first}", dtypes=EXACT)
add("npu_fused_cross_entropy_loss_with_max_sum",
    lambda: args(rand(5), positive(5), rand(5), vocab_parallel_logits=rand(5, 7)),
    lambda m, s, p, vocab_parallel_logits: (s.log() - p, (vocab_parallel_logits - m[:, None]).exp() / s[:, None]))
add("npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
    lambda: args(rand(5), rand(5, 4), rand(7, 4), torch.tensor([0b01000111], dtype=torch.uint8), ints(7, 5),
                 softmax=rand(5, 7).softmax(1)),
    lambda g, x, w, mask, t, softmax: (
        (d := (softmax - F.one_hot(t, 7) * torch.tensor([1, 0, 1, 1, 1])[:, None]) * g[:, None]) @ w, d.T @ x),
    factor=4)
for reduction in (0, 1, 2):
    for log_target in (False, True):
        add("kl_div_backward", lambda r=reduction, l=log_target: args(torch.tensor(1.5).double(), rand(3, 4), positive(3, 4), r,
                                                                     log_target=l),
            lambda g, x, t, r, log_target: torch.autograd.functional.vjp(
                lambda v: F.kl_div(v, t, reduction="none", log_target=log_target), x,
                g.expand_as(x))[1] / (x.numel() if r == 1 else 1), name=f"{reduction}-{log_target}")
        add("kl_div_target_backward",
            lambda r=reduction, l=log_target: args(torch.tensor(1.5).double(), rand(3, 4), positive(3, 4), r, log_target=l),
            lambda g, x, t, r, log_target: torch.autograd.functional.vjp(
                lambda v: F.kl_div(x, v, reduction="none", log_target=log_target), t,
                g.expand_as(x))[1] / (x.numel() if r == 1 else 1), name=f"{reduction}-{log_target}")
    for weighted in (False, True):
        add("npu_binary_cross_entropy_with_logits_backward",
            lambda r=reduction, w=weighted: args(rand(3, 4) if r == 0 else torch.tensor(1.5).double(), rand(3, 4), positive(3, 4) / 2,
                                                 positive(4) if w else None, positive(4) if w else None, r),
            lambda g, x, t, w, p, r: torch.autograd.functional.vjp(
                lambda v: F.binary_cross_entropy_with_logits(v, t, w, pos_weight=p, reduction=("none", "mean", "sum")[r]),
                x, g)[1], name=f"{reduction}-{weighted}", factor=2)
    add("l1_loss_backward", lambda r=reduction: args(torch.tensor(1.5).double(), rand(3, 4), rand(3, 4), r),
        lambda g, x, t, r: (x - t).sign() * g / (x.numel() if r == 1 else 1), name=f"{reduction}")

# ---- Products
add("npu_linear", lambda: args(rand(5, 6), rand(4, 6), rand(4)), F.linear, grad=(0, 1, 2), factor=2)
add("npu_linear", lambda: args(rand(2, 5, 6), rand(4, 6)), F.linear, grad=(0, 1), name="3d", factor=2)
add("npu_linear_backward", lambda: args(rand(5, 4), rand(5, 6), rand(4, 6)), lambda g, x, w: (g @ w, g.T @ x), factor=2)
add("npu_bmmV2", lambda: args(rand(3, 4, 5), rand(3, 5, 6), []), lambda a, b, s: a @ b, grad=(0, 1), factor=2)
add("npu_bmmV2", lambda: args(rand(3, 4, 5), rand(5, 6), [12, 6]), lambda a, b, s: (a @ b).reshape(s), grad=(0, 1),
    name="sizes", factor=2)
CONV = ([2, 1], [1, 2], [1, 1], 2)
for op in ("npu_convolution", "npu_conv2d"):
    add(op, lambda: args(rand(2, 4, 7, 6), rand(6, 2, 3, 3), rand(6), *CONV),
        lambda x, w, b, s, p, d, g: F.conv2d(x, w, b, s, p, d, g), grad=(0, 1, 2) if op == "npu_convolution" else (), factor=4)
add("npu_convolution", lambda: args(rand(2, 2, 4, 5, 4), rand(3, 2, 2, 2, 2), None, [1, 1, 1], [0, 1, 0], [1, 1, 1], 1),
    lambda x, w, b, s, p, d, g: F.conv3d(x, w, b, s, p, d, g), grad=(0, 1), name="3d", factor=4)
add("npu_conv3d", lambda: args(rand(2, 2, 4, 5, 4), rand(3, 2, 2, 2, 2), rand(3), [1, 1, 1], [0, 1, 0], [1, 1, 1], 1),
    lambda x, w, b, s, p, d, g: F.conv3d(x, w, b, s, p, d, g), factor=4)
for op in ("npu_convolution_transpose", "npu_conv_transpose2d"):
    add(op, lambda: args(rand(2, 4, 5, 4), rand(4, 3, 3, 3), rand(3), [1, 1], [0, 1], [1, 2], [1, 1], 1),
        lambda x, w, b, p, o, s, d, g: F.conv_transpose2d(x, w, b, s, p, o, g, d),
        grad=(0, 1, 2) if op == "npu_convolution_transpose" else (), factor=4)


def conv_grads(x, grad, w, s, p, d, g, mask):
    return torch.ops.aten.convolution_backward(grad, x, w, [len(w)], s, p, d, False, [0] * len(s), g, mask)


def transposed_conv_grads(x, grad, w, p, o, s, d, g, mask):
    return torch.ops.aten.convolution_backward(grad, x, w, [w.size(1) * g], s, p, d, True, o, g, mask)


for op in ("npu_convolution_backward", "npu_conv2d_backward"):
    add(op, lambda: args(rand(2, 4, 5, 4), rand(2, 3, 3, 2), rand(3, 4, 3, 3), [1, 1], [0, 0], [1, 1], 1, [True] * 3),
        conv_grads, factor=4)
add("npu_conv3d_backward", lambda: args(rand(1, 2, 3, 4, 3), rand(1, 3, 2, 3, 2), rand(3, 2, 2, 2, 2), [1] * 3, [0] * 3, [1] * 3, 1,
                                        [True] * 3), conv_grads, factor=4)
for op in ("npu_convolution_transpose_backward", "npu_conv_transpose2d_backward"):
    add(op, lambda: args(rand(2, 4, 3, 2), rand(2, 3, 5, 4), rand(4, 3, 3, 3), [0, 0], [0, 0], [1, 1], [1, 1], 1, [True] * 3),
        transposed_conv_grads, factor=4)
add("npu_conv_transpose3d_backward", lambda: args(rand(1, 2, 2, 2, 2), rand(1, 3, 3, 3, 3), rand(2, 3, 2, 2, 2), [0] * 3, [0] * 3,
                                                  [1] * 3, [1] * 3, 1, [True] * 3), transposed_conv_grads, factor=4)



def older_conv_grads(g, x, w, kernel, s, p, d, mask):
    return torch.ops.aten.convolution_backward(g, x, w, [w.size(0)], s, p, d, False, [0, 0], 1, mask)


def depthwise_grads(g, x, w, kernel, s, p, d, mask):
    return torch.ops.aten.convolution_backward(g, x, w, [0], s, p, d, False, [0, 0], x.size(1), [*mask, False])[:2]


add("slow_conv_dilated2d_backward",
    lambda: args(rand(2, 3, 3, 2), rand(2, 4, 7, 6), rand(3, 4, 3, 3), [3, 3], [1, 1], [0, 0], [2, 2], [True] * 3),
    older_conv_grads, factor=4)
add("slow_conv_transpose2d_backward",
    lambda: args(rand(2, 3, 8, 9), rand(2, 4, 3, 4), rand(4, 3, 3, 3), [3, 3], [2, 2], [0, 0], [1, 0], [1, 1], [True] * 3),
    lambda g, x, w, k, s, p, o, d, mask: torch.ops.aten.convolution_backward(g, x, w, [3], s, p, d, True, o, 1, mask), factor=4)
for multiplier in (1, 2):
    add("_conv_depthwise2d_backward",
        lambda m=multiplier: args(rand(2, 3 * m, 5, 4), rand(2, 3, 5, 4), rand(3 * m, 1, 3, 3), [3, 3], [1, 1], [1, 1], [1, 1],
                                  [True] * 2), depthwise_grads, factor=4, name=str(multiplier))
add("npu_transpose_batchmatmul",
    lambda: args(rand(4, 3, 5), rand(3, 5, 2), perm_x1=[1, 0, 2]), lambda x, w, perm_x1: (x.transpose(0, 1) @ w).transpose(0, 1),
    name="default", factor=2)
add("npu_transpose_batchmatmul",
    lambda: args(rand(4, 3, 5), rand(3, 2, 5), perm_x1=[1, 0, 2], perm_x2=[0, 2, 1], perm_y=[0, 1, 2]),
    lambda x, w, **_: x.transpose(0, 1) @ w.mT, name="permuted", factor=2)
add("npu_transpose_batchmatmul",
    lambda: args(rand(4, 3, 5), rand(4, 5, 2), batch_split_factor=2),
    lambda x, w, batch_split_factor: torch.stack([t.transpose(0, 1).flatten(1) for t in (x @ w).chunk(2)]), name="split", factor=2)
for kind, reference in (("", lambda y, z: y), ("relu", lambda y, z: y.relu()), ("gelu_erf", lambda y, z: F.gelu(y)),
                        ("gelu_tanh", lambda y, z: F.gelu(y, approximate="tanh")), ("add", torch.add), ("mul", torch.mul)):
    add("npu_fused_matmul",
        lambda k=kind: args(rand(3, 4), rand(4, 5), bias=rand(5) if k in ("", "relu") else None,
                            x3=rand(3, 5) if k in ("add", "mul") else None, fused_op_type=k),
        lambda a, b, bias, x3, fused_op_type, f=reference: f(a @ b if bias is None else a @ b + bias, x3), name=kind, factor=3)

# ---- Along a sequence
for sizes in ((7, 2, 4, 3), (2, 1, 3, 4), (1, 2, 2, 1)):
    for with_mask in (False, True):

        def conv_args(sizes=sizes, with_mask=with_mask):
            tokens, batch, width, taps = sizes
            return args(rand(tokens, batch, width), rand(taps, width), mask=ints(2, batch, tokens).bool() if with_mask else None)

        add("npu_masked_causal_conv1d", conv_args, R.masked_causal_conv, grad=(0, 1), name=f"{sizes}-{with_mask}", factor=2)
for with_gates in (False, True):
    for accepted in (False, True):

        def delta_args(with_gates=with_gates, accepted=accepted):
            tokens = 5
            return args(rand(tokens, 2, 4) / 2, rand(tokens, 2, 4) / 2, rand(tokens, 4, 3), rand(6, 4, 3, 4),
                        beta=positive(tokens, 4) / 2 if with_gates else None, scale=0.5,
                        actual_seq_lengths=torch.tensor([2, 3], dtype=torch.int32),
                        ssm_state_indices=torch.tensor([5, 1, 0, 2, 4], dtype=torch.int32),
                        num_accepted_tokens=torch.tensor([2, 3], dtype=torch.int32) if accepted else None,
                        g=-positive(tokens, 4) if with_gates else None)

        add("npu_recurrent_gated_delta_rule_functional", delta_args, R.gated_delta_rule, name=f"{with_gates}-{accepted}",
            dtypes=EXACT, factor=2)
        add("npu_recurrent_gated_delta_rule", delta_args, lambda *a, **k: R.gated_delta_rule(*a, **k)[0],
            name=f"{with_gates}-{accepted}", dtypes=EXACT, factor=2)

# ---- Serving
for update_type in (0, 1):
    add("npu_attention_update",
        lambda u=update_type: args([rand(5) for _ in range(3)], [rand(5, 8) for _ in range(3)], u), R.attention_update,
        name=str(update_type), dtypes=EXACT, factor=2)
for mode in ("Norm", "PA_NZ"):

    def cache_args(mode=mode):
        caches = [rand(3, 4, 2, d) if mode == "Norm" else rand(3, 2 * d // 4, 4, 4) for d in (8, 6)]
        slots = torch.tensor([7, -1, 0, 11, 4], dtype=torch.int32)
        return args(rand(5, 2, 8), rand(5, 2, 6), *caches, slots, cache_mode=mode)

    add("npu_scatter_pa_kv_cache_functional", cache_args, R.scatter_cache, name=mode)
for filters in ("k", "p", "kp", ""):
    add("npu_top_k_top_p",
        lambda f=filters: args(rand(6, 9), torch.tensor([0.01, 0.3, 0.5, 0.8, 0.95, 1.0]).double() if "p" in f else None,
                               torch.tensor([1, 9, 3, 4, 20, 2], dtype=torch.int32) if "k" in f else None), R.top_k_top_p,
        name=filters, dtypes=EXACT)

# ---- Views, fills, gathers
add("npu_transpose", lambda: args(rand(2, 3, 4), [2, 0, 1]), lambda x, p: x.permute(p))
add("npu_reshape", lambda: args(rand(2, 3, 4), [4, -1]), lambda x, s: x.reshape(s))
add("npu_broadcast", lambda: args(rand(3, 1), [2, 3, 4]), lambda x, s: x.expand(s))
add("npu_slice", lambda: args(rand(4, 5, 6), [1, 0, 2], [2, -1, 3]), lambda x, o, s: x[1:3, :, 2:5])
add("npu_indexing", lambda: args(rand(5, 6), [1, 0], [4, 5], [1, 2]), lambda x, b, e, s: x[1:4, 0:5:2])
add("npu_indexing", lambda: args(rand(5, 6), [1, 3], [4, 5], [1, 1], 1, 0, 0, 0, 2), lambda x, *_: x[:4, 3], name="masks")
add("npu_stride_copy", lambda: args(rand(4, 4), [2, 3], [5, 1], 1), lambda x, s, t, o: x.as_strided(s, t, int(o)))
for first in (False, True):
    add("npu_confusion_transpose",
        lambda f=first: args(rand(2, 3, 4, 6), [0, 2, 1, 3], [2, 4, 18] if f else [2, 4, 3, 6], f), R.confusion_transpose,
        grad=(0,), name=str(first))
add("npu_confusion_transpose", lambda: args(rand(6, 8), [0, 2, 1, 3], [2, 3, 2, 4], False), R.confusion_transpose,
    grad=(0,), name="heads")
add("npu_confusion_transpose", lambda: args(rand(2, 3, 4), [0, -1, 1], [2, 4, 3], True), R.confusion_transpose, grad=(0,),
    name="from the end")
add("npu_view_copy", lambda: args(rand(3, 4), rand(3, 4), False), lambda x, y, n: y)
add("one_", lambda: args(rand(3, 4)), torch.ones_like)
add("npu_pad", lambda: args(rand(3, 4), [1, 2, 0, 3]), lambda x, p: F.pad(x, (0, 3, 1, 2)))
add("npu_one_hot", lambda: args(ints(5, 2, 3, dtype=torch.int32), -1, 6, 2, -1),
    lambda x, a, d, on, off: torch.where(F.one_hot(x.long(), d).bool(), float(on), float(off)), dtypes=EXACT)
for op, reference in (("npu_max.dim", torch.max), ("npu_min.dim", torch.min)):
    for keep in (False, True):
        add(op, lambda k=keep: args(rand(3, 4, 5), 1, k), lambda x, d, k, r=reference: tuple(r(x, d, k)), grad=(0,), name=str(keep),
            dtypes=EXACT)
add("npu_sort_v2", lambda: args(rand(3, 7), 1, True), lambda x, d, r: x.sort(d, r).values)
for shape in ((4,), (2, 3), (0,)):
    add("npu_gather_sparse_index", lambda s=shape: args(rand(5, 3), ints(5, *s)), lambda w, i: w[i], grad=(0,), name=f"{shape}")
for op in ("npu_scatter_nd_update", "npu_scatter_nd_update_"):
    add(op, lambda: args(rand(5, 3), torch.tensor([[0], [4], [2]]), rand(3, 3)),
        lambda x, i, u: x.index_copy(0, i[:, 0], u), name="rows")
    add(op, lambda: args(rand(5, 3), torch.tensor([[0, 1], [4, 2]]), rand(2)),
        lambda x, i, u: x.index_put((i[:, 0], i[:, 1]), u), name="elements")
for op in ("scatter_update", "scatter_update_"):
    add(op, lambda: args(rand(3, 2, 6, 4), torch.tensor([0, 5, 2]), rand(3, 2, 1, 4), -2), R.scatter_update)
for dim in (0, 1):
    add("npu_scatter", lambda d=dim: args(rand(4, 4), ints(4, 4, dtype=torch.int32), rand(4), d),
        lambda x, i, u, d: x.scatter(d, i.long().unsqueeze(d), u.unsqueeze(d)), name=f"{dim}")
add("npu_scatter", lambda: args(rand(4, 3), ints(4, 1, 3), rand(1, 3), 0), lambda x, i, u, d: x.scatter(d, i, u), name="kept")
for with_mask in (False, True):
    add("npu_scatter_list",
        lambda m=with_mask: args([rand(2, 6, 3), rand(2, 5, 3)], torch.tensor([4, 1], dtype=torch.int32), rand(2, 2, 2, 3),
                                 torch.tensor([1, 0], dtype=torch.uint8) if m else None), R.scatter_list, name=str(with_mask))
for op in ("_npu_index_add", "_npu_index_add_"):
    add(op, lambda: args(rand(4, 3), ints(4, 5), rand(5, 3), alpha=2), lambda x, i, s, alpha: x.index_add(0, i, s, alpha=alpha),
        factor=4)
add("npu_gather_backward", lambda: args(rand(3, 2), [3, 5], 1, ints(5, 3, 2), False),
    lambda g, s, d, i, _: torch.zeros(s, dtype=g.dtype).scatter_add(d, i, g))
for dim in (None, 0, 1):
    add("repeat_interleave_backward_int", lambda d=dim: args(rand(*((36,) if d is None else (9, 4) if d == 0 else (3, 12))), rand(3, 4), 3, d),
        lambda g, x, r, d: torch.autograd.functional.vjp(lambda t: t.repeat_interleave(r, d), x, g)[1], name=f"{dim}", factor=2)
    add("repeat_interleave_backward_tensor",
        lambda d=dim: args(rand(*((24,) if d is None else (6, 4) if d == 0 else (3, 8))), rand(3, 4),
                           torch.full((12,), 2) if d is None else torch.tensor([1, 3, 2]) if d == 0 else torch.tensor([2, 0, 5, 1]), d),
        lambda g, x, r, d: torch.autograd.functional.vjp(lambda t: t.repeat_interleave(r, d), x, g)[1], name=f"{dim}", factor=2)

# ---- Mixture of experts
for indices in ((6,), (6, 1), (6, 3)):
    for kept in (None, 5):
        add("npu_moe_token_permute", lambda i=indices, n=kept: args(rand(6, 4), ints(4, *i), n), R.token_permute, grad=(0,),
            name=f"{indices}-{kept}")
for topk, with_probs in ((1, False), (1, True), (3, True)):
    for rows in (None, 2):

        def unpermute_args(topk=topk, with_probs=with_probs, rows=rows):
            pairs = 5 * topk
            probs = rand(5, topk) if with_probs else None
            return args(rand(rows or pairs, 4), torch.randperm(pairs).int(), probs)

        add("npu_moe_token_unpermute", unpermute_args, R.token_unpermute, grad=(0, 2) if with_probs else (0,),
            name=f"{topk}-{with_probs}-{rows}", factor=2)


def routing_map(tokens=6, experts=4, topk=2):
    return torch.zeros(tokens, experts, dtype=torch.bool).scatter(1, rand(tokens, experts).topk(topk).indices, True)


for pad in (False, True):
    for with_probs in (False, True):
        add("npu_moe_token_permute_with_routing_map",
            lambda p=pad, w=with_probs: args(rand(6, 5), routing_map(), probs=rand(6, 4) if w else None, num_out_tokens=12,
                                            drop_and_pad=p), R.permute_by_map, grad=(0,),
            outputs=(0,), name=f"{pad}-{with_probs}")

        def unpermute_map_args(pad=pad, with_probs=with_probs):
            chosen = routing_map()
            order = R.permute_by_map(rand(6, 5), chosen, None, 12, pad)[2].int()
            return args(rand(12, 5), order, [6, 5], probs=rand(6, 4) if with_probs else None, routing_map=chosen, drop_and_pad=pad)

        add("npu_moe_token_unpermute_with_routing_map", unpermute_map_args, R.unpermute_by_map, grad=(0,),
            name=f"{pad}-{with_probs}", factor=4)
for norm_type in (0, 1):
    for groups, mode in ((1, 0), (4, 0), (4, 1)):
        add("npu_moe_gating_top_k",
            lambda n=norm_type, g=groups, m=mode: args(rand(5, 16), 3, bias=rand(16), k_group=min(2, g), group_count=g,
                                                       group_select_mode=m, norm_type=n, routed_scaling_factor=2.5),
            lambda x, k, bias, k_group, group_count, group_select_mode, norm_type, routed_scaling_factor: R.gating_top_k(
                x, k, bias, k_group, group_count, group_select_mode, norm_type, routed_scaling_factor),
            grad=(0,), name=f"{norm_type}-{groups}-{mode}", dtypes=EXACT)
add("npu_moe_gating_top_k_softmax", lambda: args(rand(5, 8), torch.rand(5) > 0.5, 3), R.gating_softmax, dtypes=EXACT)
add("npu_moe_gating_top_k_softmax", lambda: args(rand(2, 5, 8), None, 2), R.gating_softmax, dtypes=EXACT, name="3d")
add("npu_moe_gating_top_k_softmax_v2", lambda: args(rand(5, 8), k=3, output_softmax=True),
    lambda x, k, output_softmax: (*R.gating_softmax(x, None, k)[:2], x.softmax(-1)), dtypes=EXACT)
add("npu_moe_gating_top_k_softmax_v2", lambda: args(rand(5, 8), k=3, renorm=1),
    lambda x, k, renorm: (x.topk(k).values.softmax(-1), x.topk(k).indices, None), dtypes=EXACT, name="renorm")
add("npu_moe_compute_expert_tokens", lambda: args(ints(6, 20, dtype=torch.int32).sort().values, 7),
    lambda e, n: torch.bincount(e, minlength=n).cumsum(0), dtypes=EXACT)
for active in (3, 99):
    add("npu_moe_init_routing",
        lambda a=active: args(rand(5, 4), torch.arange(15, dtype=torch.int32).view(3, 5).T.contiguous(),
                              ints(7, 5, 3, dtype=torch.int32), a), R.init_routing, name=f"{active}", dtypes=EXACT)
for mode in (0, 2):
    add("npu_moe_finalize_routing",
        lambda m=mode: args(rand(15, 4), rand(5, 4), rand(5, 4), rand(6, 4), rand(5, 3), torch.randperm(15).int(),
                            ints(6, 5, 3, dtype=torch.int32), m), R.finalize_routing, name=f"{mode}", factor=4)
add("npu_moe_finalize_routing",
    lambda: args(rand(3, 5, 4), rand(5, 4), None, None, rand(5, 3),
                 torch.where(torch.arange(15) % 4 == 0, -1, torch.randperm(15)).int(), None, 1), R.finalize_routing, name="dropped",
    factor=4)
for idx_type in (0, 1):
    add("npu_moe_re_routing",
        lambda i=idx_type: args(rand(12, 4), torch.tensor([[2, 0, 3], [1, 4, 2]]), per_token_scales=rand(12), idx_type=i),
        R.re_routing, name=f"{idx_type}", dtypes=EXACT)
for list_type, groups in ((0, [2, 5, 5, 7]), (1, [2, 3, 0, 2])):
    add("npu_grouped_matmul",
        lambda t=list_type, g=groups: args([rand(9, 4)], [rand(4, 4, 3)], group_list=torch.tensor(g), split_item=3, group_type=0,
                                          group_list_type=t),
        lambda x, w, **k: torch.cat([x[0][:2] @ w[0][0], x[0][2:5] @ w[0][1], x[0][5:7] @ w[0][3], torch.zeros(2, 3)]),
        name=f"rows-{list_type}", factor=4)
add("npu_grouped_matmul",
    lambda: args([rand(6, 9)], [rand(9, 3)], group_list=torch.tensor([4, 9]), split_item=3, group_type=2),
    lambda x, w, **k: torch.stack([x[0][:, :4] @ w[0][:4], x[0][:, 4:] @ w[0][4:]]), name="summed", factor=4)
add("npu_grouped_matmul",
    lambda: args([rand(2, 4), rand(3, 5)], [rand(4, 3), rand(5, 2)], bias=[rand(3), rand(2)], split_item=0, group_type=-1),
    lambda x, w, bias, **k: [a @ b + c for a, b, c in zip(x, w, bias, strict=True)], name="lists", factor=4)
for op in ("npu_grouped_matmul_add", "npu_grouped_matmul_add_"):
    add(op, lambda: args(rand(2, 4, 3), rand(7, 4), rand(7, 3), torch.tensor([3, 7])),
        lambda y, x, w, g: y + torch.stack([x[:3].T @ w[:3], x[3:].T @ w[3:]]), factor=4, dtypes=EXACT)

# ---- Casts and status
for op in ("npu_dtype_cast", "_npu_dtype_cast"):
    add(op, lambda: args(rand(3, 4), torch.float32), lambda x, t: x.to(t), dtypes=EXACT)
add("npu_alloc_float_status", lambda: args(rand(3)), lambda x: torch.zeros(8), dtypes=EXACT)
add("npu_get_float_status", lambda: args(rand(8)), lambda x: torch.zeros(8), dtypes=EXACT)
add("npu_clear_float_status", lambda: args(rand(8)), lambda x: torch.zeros(8), dtypes=EXACT)
add("copy_memory_", lambda: args(rand(3), rand(3)), lambda x, y: y)

# ---- Ring attention


def ring(prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum):
    top = torch.maximum(prev_max, cur_max)
    a, b = prev_sum * (prev_max - top).exp(), cur_sum * (cur_max - top).exp()
    weight = lambda t: (t / (a + b))[..., :1].permute(2, 0, 1, 3)  # noqa: E731
    out = prev_out.unflatten(2, (2, -1)) * weight(a) + cur_out.unflatten(2, (2, -1)) * weight(b)
    return out.flatten(2), top, a + b


def ring_statistics():
    return rand(3, 2, 4, 1).expand(-1, -1, -1, 8).clone(), positive(3, 2, 4, 1).expand(-1, -1, -1, 8).clone()


add("npu_ring_attention_update", lambda: args(rand(4, 3, 10), *ring_statistics(), rand(4, 3, 10), *ring_statistics()), ring,
    dtypes=EXACT)
