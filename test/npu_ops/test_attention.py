"""npu_fusion_attention and its gradients against attention written out: layouts, masks, sparse modes, biases, sinks,
rotary parts, dropout."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch_npu
from cases import assert_matches, rand
from torch._subclasses import FakeTensorMode

B, N, D = 2, 4, 8
UNLIMITED = 2147483647


def to_layout(bnsd: torch.Tensor, layout: str) -> torch.Tensor:
    """From (B, N, S, D)."""
    if layout == "BNSD":
        return bnsd.contiguous()
    bsnd = bnsd.transpose(1, 2)
    if layout == "BSND":
        return bsnd.contiguous()
    return (bsnd.flatten(2) if layout == "BSH" else bsnd.flatten(2).transpose(0, 1)).contiguous()


def attend(q, k, v, masked=None, scale=1.0, bias=None, before_scale=True, sink=None, keep=None, keep_prob=1.0):
    """Attention of (B, N, S, D) tensors; ``masked`` is true where a score does not count. Gives (out, max, sum)."""
    k, v = (t.repeat_interleave(q.size(1) // t.size(1), 1) for t in (k, v))
    scores = q @ k.mT * scale
    if bias is not None:
        scores = scores + (scale * bias if before_scale else bias)
    if masked is not None:
        scores = scores.masked_fill(masked, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    if sink is not None:
        top = torch.maximum(top, sink.view(1, -1, 1, 1))
    top = top.clamp(min=torch.finfo(torch.float32).min)
    p = (scores - top).exp()
    total = p.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink.view(1, -1, 1, 1) - top).exp()
    p = p / total.clamp(min=1e-30)
    if keep is not None:
        p = p * keep / keep_prob
    return p @ v, top, total


def tensors(queries=6, keys=6, kv_heads=N, batch=B, value_size=D):
    return rand(batch, N, queries, D), rand(batch, kv_heads, keys, D), rand(batch, kv_heads, keys, value_size)


def visible(queries, keys, before, after, prefix=0):
    ahead = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    return (ahead <= after) & (ahead >= -before) | (torch.arange(keys)[None] < prefix)


def masked_by_mode(mode, queries, keys, pre, following, prefix=None):
    """True where masked, (queries, keys) or (B, 1, queries, keys) for prefixes."""
    shift = keys - queries
    if mode in (0, 4):
        origin = shift if mode == 4 else 0
        return ~visible(queries, keys, pre - origin, following + origin)
    if mode == 2:
        return ~visible(queries, keys, UNLIMITED, 0)
    if mode == 3:
        return ~visible(queries, keys, UNLIMITED, shift)
    return torch.stack([~visible(queries, keys, UNLIMITED, shift, p) for p in prefix])[:, None]


COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
COMPRESSED_PREFIX = torch.cat((COMPRESSED, torch.ones(1024, 2048, dtype=torch.bool)))


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [N, 1])
def test_layouts(layout, dtype, kv_heads):
    q, k, v = (t.to(dtype) for t in tensors(5, 7, kv_heads))
    out, top, total, _, seed, offset, numels = torch_npu.npu_fusion_attention(
        *(to_layout(t, layout).npu() for t in (q, k, v)), N, layout, scale=0.3
    )
    want, want_top, want_total = attend(*(t.double() for t in (q, k, v)), scale=0.3)
    assert_matches(out, to_layout(want, layout), factor=4)
    assert (seed, offset, numels) == (0, 0, 0)
    assert top.shape == total.shape == (B, N, 5, 8)
    torch.testing.assert_close(top.cpu()[..., :1].double(), want_top, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total.cpu()[..., 7:].double(), want_total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_layout_gradients(layout):
    leaves = [to_layout(t, layout).npu().requires_grad_() for t in tensors(3, 4, 2)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, N, layout, scale=0.5)[0], leaves
    )


MODES = [
    (0, 2, 1), (0, UNLIMITED, 0), (2, 0, 0), (3, 0, 0), (4, 2, 1), (4, 9, -1), (4, 0, 0), (6, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "pre", "following"), MODES)
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (4, 7), (7, 4)])
def test_sparse_modes(mode, pre, following, queries, keys):
    q, k, v = tensors(queries, keys)
    prefix = [1, 3] if mode == 6 else None
    masked = masked_by_mode(mode, queries, keys, pre, following, prefix)
    given = {0: masked, 6: COMPRESSED_PREFIX}.get(mode, COMPRESSED)
    options = {"atten_mask": given.npu(), "sparse_mode": mode, "pre_tockens": pre, "next_tockens": following, "prefix": prefix}
    leaves = [t.npu().requires_grad_() for t in (q, k, v)]
    out = torch_npu.npu_fusion_attention(*leaves, N, "BNSD", scale=0.4, **options)[0]
    references = [t.requires_grad_() for t in (q, k, v)]
    want = attend(*references, masked, 0.4)[0]
    assert_matches(out.detach(), want.detach())
    grad = rand(*want.shape)
    out.backward(grad.npu())
    want.backward(grad)
    for leaf, reference in zip(leaves, references, strict=True):
        torch.testing.assert_close(leaf.grad.cpu(), reference.grad.nan_to_num(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mode", [1, 5])
@pytest.mark.parametrize("sizes", [(5, 7), (1, 1, 5, 7), (B, 1, 5, 7), (B, N, 5, 7)])
def test_modes_whose_mask_says_it_all(mode, sizes):
    q, k, v = tensors(5, 7)
    masked = torch.rand(sizes) > 0.6
    out = torch_npu.npu_fusion_attention(
        q.npu(), k.npu(), v.npu(), N, "BNSD", atten_mask=masked.npu(), sparse_mode=mode, prefix=[0] * B if mode == 5 else None
    )[0]
    assert_matches(out, attend(q, k, v, masked)[0])


def test_a_query_that_sees_nothing_gives_zeros():
    q, k, v = (t.npu().requires_grad_() for t in tensors(3, 3))
    masked = torch.eye(3, dtype=torch.bool).logical_not()
    masked[1] = True
    out, _, total, *_ = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", atten_mask=masked.npu())
    assert out[:, :, 1].eq(0).all() and total[:, :, 1].eq(0).all()
    out.sum().backward()
    assert q.grad.isfinite().all() and q.grad[:, :, 1].eq(0).all()


@pytest.mark.parametrize("blocks", [1, 3])
def test_long_sequences_are_computed_in_blocks(blocks):
    """More scores than one block holds: the whole matrix would be 4 * blocks MiB for each head and batch entry."""
    length = 512 * blocks
    q, k, v = (torch.randn(2, 8, length, 16) for _ in range(3))
    torch.npu.reset_peak_memory_stats()
    device = [t.npu().requires_grad_() for t in (q, k, v)]
    before = torch.npu.memory_allocated()
    out = torch_npu.npu_fusion_attention(*device, 8, "BNSD", scale=0.25, atten_mask=COMPRESSED.npu(), sparse_mode=3)[0]
    out.sum().backward()
    peak = torch.npu.max_memory_allocated() - before
    if blocks == 3:
        assert peak < 2 * 8 * length * length * 4 / 2
    want = attend(q.double(), k.double(), v.double(), torch.ones(length, length, dtype=torch.bool).triu(1), 0.25)[0]
    assert_matches(out.detach(), want, factor=4)


PACKED = [([3, 3, 8], [4, 6, 11]), ([2, 7], [2, 7]), ([5], [3])]


def packed_samples(q_ends, k_ends):
    starts = lambda ends: [0, *ends[:-1]]  # noqa: E731
    yield from (
        (slice(a, b), slice(c, d)) for a, b, c, d in zip(starts(q_ends), q_ends, starts(k_ends), k_ends, strict=True)
    )


def packed_mask(mode, index, count, queries, keys, pre, following):
    shift = keys - queries
    band = ~visible(queries, keys, pre - shift, following + shift)
    if mode == 0:
        return torch.zeros(queries, keys, dtype=torch.bool)
    if mode == 4 or mode == 7 and index == count - 1 or mode == 8 and index == 0:
        return band
    return ~visible(queries, keys, UNLIMITED, shift if mode in (3, 7) else 0)


@pytest.mark.parametrize(("q_ends", "k_ends"), PACKED)
@pytest.mark.parametrize("mode", [0, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("softmax_layout", ["", "TND"])
def test_packed_sequences(q_ends, k_ends, mode, softmax_layout):
    leaves = [rand(q_ends[-1], N, D), rand(k_ends[-1], 2, D), rand(k_ends[-1], 2, D)]
    device = [t.npu().requires_grad_() for t in leaves]
    out, top, _, *_ = torch_npu.npu_fusion_attention(
        *device, N, "TND", scale=0.4, actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends, sparse_mode=mode, pre_tockens=2,
        next_tockens=1, atten_mask=COMPRESSED.npu() if mode else None, softmax_layout=softmax_layout,
    )  # fmt: skip
    references = [t.requires_grad_() for t in leaves]
    parts, tops = [], []
    for i, (rows, columns) in enumerate(packed_samples(q_ends, k_ends)):
        q, k, v = (t[s].transpose(0, 1)[None] for t, s in zip(references, (rows, columns, columns), strict=True))
        masked = packed_mask(mode, i, len(q_ends), q.size(2), k.size(2), 2, 1)
        result, result_top, _ = attend(q, k, v, masked, 0.4)
        parts.append(result[0].transpose(0, 1))
        tops.append(result_top[0].transpose(0, 1) if softmax_layout else result_top[0].reshape(-1, 1))
    want = torch.cat(parts)
    assert_matches(out.detach(), want.detach())
    flat = top.cpu() if softmax_layout else top.cpu().reshape(-1, 8)
    torch.testing.assert_close(flat[..., :1], torch.cat(tops).detach(), rtol=1e-9, atol=1e-9)
    out.sum().backward()
    want.sum().backward()
    for leaf, reference in zip(device, references, strict=True):
        torch.testing.assert_close(leaf.grad.cpu(), reference.grad.nan_to_num(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("sizes", [(B, N, 3, 4), (1, N, 3, 4), (B, N, 1, 4)])
def test_position_bias(sizes):
    leaves = [t.npu().requires_grad_() for t in (*tensors(3, 4), rand(*sizes))]

    def call(q, k, v, pse):
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", pse=pse, scale=0.5)[0]

    q, k, v, pse = (t.detach().cpu() for t in leaves)
    assert_matches(call(*leaves).detach(), attend(q, k, v, scale=0.5, bias=pse)[0])
    assert torch.autograd.gradcheck(call, leaves)


@pytest.mark.parametrize("pse_type", [0, 1, 2, 3])
def test_bias_kinds_of_version_2(pse_type):
    q, k, v = tensors(4, 5)
    if pse_type < 2:
        pse = bias = rand(B, N, 4, 5)
    else:
        pse = torch.rand(N, dtype=torch.float64)
        distance = (torch.arange(4)[:, None] + 2 - torch.arange(5)[None] - 1).abs().double()
        bias = -pse.view(1, N, 1, 1) * (distance.sqrt() if pse_type == 3 else distance)
    out = torch_npu.npu_fusion_attention_v2(
        q.npu(), k.npu(), v.npu(), N, "BNSD", pse=pse.npu(), scale=0.5, pse_type=pse_type, q_start_idx=[2], kv_start_idx=[1]
    )[0]
    assert_matches(out, attend(q, k, v, scale=0.5, bias=bias, before_scale=pse_type == 1)[0])


def test_rotary_parts_add_to_the_scores():
    q, k, v = tensors(3, 4)
    q_rope, k_rope = rand(B, N, 3, 4), rand(B, N, 4, 4)
    leaves = [t.npu().requires_grad_() for t in (q, k, v, q_rope, k_rope)]

    def call(q, k, v, qr, kr):
        return torch_npu.npu_fusion_attention_v2(q, k, v, N, "BNSD", query_rope=qr, key_rope=kr, scale=0.5)[0]

    want = attend(torch.cat((q, q_rope), -1), torch.cat((k, k_rope), -1), v, scale=0.5)[0]
    assert_matches(call(*leaves).detach(), want)
    assert torch.autograd.gradcheck(call, leaves)


def test_sink_takes_part_in_the_softmax():
    leaves = [t.npu().requires_grad_() for t in (*tensors(3, 4), rand(N))]

    def call(q, k, v, sink):
        return torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", scale=0.5, sink=sink)[0]

    q, k, v, sink = (t.detach().cpu() for t in leaves)
    assert_matches(call(*leaves).detach(), attend(q, k, v, scale=0.5, sink=sink)[0])
    assert torch.autograd.gradcheck(call, leaves)


def keep_mask(sizes, keep_prob, seed, offset):
    packed = torch.ops.npu._npu_dropout_gen_mask(torch.empty(1, device="npu"), sizes, 1 - keep_prob, seed, offset)
    bits = packed.cpu()[:, None].bitwise_right_shift(torch.arange(8, dtype=torch.uint8)).bitwise_and(1).flatten()
    return bits[: torch.Size(sizes).numel()].view(sizes)


@pytest.mark.parametrize("layout", ["BNSD", "SBH"])
def test_dropout_is_the_mask_of_its_seed_and_offset(layout):
    torch.npu.manual_seed(5)
    q, k, v = tensors(6, 7)
    leaves = [to_layout(t, layout).npu().requires_grad_() for t in (q, k, v)]
    out, _, _, _, seed, offset, numels = torch_npu.npu_fusion_attention(*leaves, N, layout, scale=0.4, keep_prob=0.7)
    assert (seed, numels) == (5, B * N * 6 * 7)
    keep = keep_mask([B, N, 6, 7], 0.7, seed, offset)
    references = [t.requires_grad_() for t in (q, k, v)]
    want = attend(*references, scale=0.4, keep=keep, keep_prob=0.7)[0]
    assert_matches(out.detach(), to_layout(want, layout).detach())
    out.sum().backward()
    want.sum().backward()
    for leaf, reference in zip(leaves, references, strict=True):
        torch.testing.assert_close(leaf.grad.cpu(), to_layout(reference.grad, layout), rtol=1e-8, atol=1e-9)
    again = torch_npu.npu_fusion_attention(*leaves, N, layout, scale=0.4, keep_prob=0.7)
    assert again[5] != offset and not torch.equal(again[0], out)
    torch.npu.manual_seed(5)
    assert torch.equal(torch_npu.npu_fusion_attention(*leaves, N, layout, scale=0.4, keep_prob=0.7)[0], out)


def test_a_given_dropout_mask_is_used():
    q, k, v = tensors(6, 7)
    packed = torch.ops.npu._npu_dropout_gen_mask(torch.empty(1, device="npu"), [B, N, 6, 7], 0.5, 3, 8)
    leaves = [t.npu().requires_grad_() for t in (q, k, v)]

    def call(*leaves):
        return torch_npu.npu_fusion_attention(*leaves, N, "BNSD", keep_prob=0.5, dropout_mask=packed)[0]

    want = attend(q, k, v, keep=keep_mask([B, N, 6, 7], 0.5, 3, 8), keep_prob=0.5)[0]
    assert_matches(call(*leaves).detach(), want)
    assert torch.autograd.gradcheck(call, leaves)


def test_version_3_takes_lengths_as_tensors():
    ends = [3, 8]
    leaves = [rand(8, N, D).npu().requires_grad_() for _ in range(3)]
    lengths = {"actual_seq_qlen": torch.tensor(ends).npu(), "actual_seq_kvlen": torch.tensor(ends).npu()}
    results = torch_npu.npu_fusion_attention_v3(*leaves, N, "TND", scale=0.4, keep_prob=0.8, **lengths)
    options = {"actual_seq_qlen": ends, "actual_seq_kvlen": ends, "seed": results[4].item(), "offset": results[5].item() or 1}
    if results[5].item():
        assert torch.equal(results[0], torch_npu.npu_fusion_attention(*leaves, N, "TND", scale=0.4, keep_prob=0.8, **options)[0])
    assert torch.autograd.gradcheck(
        lambda q, k, v: torch_npu.npu_fusion_attention_v3(q, k, v, N, "TND", scale=0.4, **lengths)[0], leaves
    )
    with torch.no_grad():
        out = [torch.empty(0, dtype=t.dtype, device="npu") for t in results]
        torch.ops.npu.npu_fusion_attention_v3.out(*leaves, N, "TND", scale=0.4, out=out, **lengths)
        assert torch.equal(out[0], torch_npu.npu_fusion_attention_v3(*leaves, N, "TND", scale=0.4, **lengths)[0])


def test_gradient_operator_with_statistics_of_a_longer_row():
    """Ring attention: each part of the keys gives its share of the gradients with the statistics of the whole row."""
    q, k, v = tensors(4, 8)
    grad = rand(B, N, 4, D)
    whole = [t.npu().requires_grad_() for t in (q, k, v)]
    out, top, total, *_ = torch_npu.npu_fusion_attention(*whole, N, "BNSD", scale=0.4)
    out.backward(grad.npu())
    dq = 0
    for half in (slice(0, 4), slice(4, 8)):
        part = torch_npu.npu_fusion_attention_grad(
            q.npu(), k[:, :, half].npu(), v[:, :, half].npu(), grad.npu(), N, "BNSD", softmax_max=top, softmax_sum=total,
            attention_in=out.detach(), scale_value=0.4,
        )  # fmt: skip
        dq = dq + part[0]
        torch.testing.assert_close(part[1], whole[1].grad[:, :, half])
        torch.testing.assert_close(part[2], whole[2].grad[:, :, half])
    torch.testing.assert_close(dq, whole[0].grad)


def test_ring_update_joins_two_halves():
    q, k, v = (t.npu() for t in tensors(4, 8))
    whole = torch_npu.npu_fusion_attention(q, k, v, N, "BNSD", scale=0.4)
    halves = [
        torch_npu.npu_fusion_attention(q, k[:, :, s], v[:, :, s], N, "BNSD", scale=0.4)
        for s in (slice(0, 4), slice(4, 8))
    ]
    parts = [(to_layout(out, "SBH"), top.float(), total.float()) for out, top, total, *_ in halves]
    out, top, total = torch_npu.npu_ring_attention_update(*parts[0], *parts[1])
    torch.testing.assert_close(out, to_layout(whole[0], "SBH"), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(total, whole[2].float())


@pytest.mark.parametrize("softmax_layout", ["", "TND"])
def test_ring_update_of_packed_sequences(softmax_layout):
    ends = [2, 5]
    q, k, v = (rand(5, N, D).npu() for _ in range(3))
    options = {"actual_seq_qlen": ends, "actual_seq_kvlen": ends, "scale": 0.4, "softmax_layout": softmax_layout}
    first = torch_npu.npu_fusion_attention(q, k, v, N, "TND", **options)
    second = torch_npu.npu_fusion_attention(q, 2 * k, -v, N, "TND", **options)
    out, top, total = torch_npu.npu_ring_attention_update(
        *first[:3], *second[:3], actual_seq_qlen=torch.tensor(ends).npu(), input_layout="TND", input_softmax_layout=softmax_layout
    )
    twice = lambda s: (q[s], torch.cat((k[s], 2 * k[s])), torch.cat((v[s], -v[s])))  # noqa: E731
    want = [attend(*(t.cpu().transpose(0, 1)[None] for t in twice(s)), scale=0.4) for s in (slice(0, 2), slice(2, 5))]
    assert_matches(out, torch.cat([w[0][0].transpose(0, 1) for w in want]))
    assert top.shape == total.shape == (5, N, 8)


@pytest.mark.parametrize("layout", ["BNSD", "BSH", "TND"])
def test_shapes_without_values(layout):
    q, k, v = (t.float() for t in tensors(5, 7, 2))
    lengths = {"actual_seq_qlen": [5], "actual_seq_kvlen": [7]} if layout == "TND" else {}
    make = lambda t: t[0].transpose(0, 1).contiguous() if layout == "TND" else to_layout(t, layout)  # noqa: E731
    real = torch_npu.npu_fusion_attention(*(make(t).npu() for t in (q, k, v)), N, layout, **lengths)
    shapes = [make(t).shape for t in (q, k, v)]
    with FakeTensorMode():
        fake = torch_npu.npu_fusion_attention(*(torch.empty(s, device="npu") for s in shapes), N, layout, **lengths)
    for a, b in itertools.islice(zip(real, fake, strict=True), 4):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


def test_multi_head_attention():
    batch, heads, size, length = 2, 2, 4, 3
    hidden = heads * size
    names = ["query", "key", "value", "qw", "kw", "vw", "mask", "ow", "qb", "kb", "vb", "ob"]
    leaves = {n: rand(batch * length, hidden) for n in names[:3]} | {n: rand(hidden, hidden) for n in ("qw", "kw", "vw", "ow")}
    leaves |= {n: rand(hidden) for n in ("qb", "kb", "vb", "ob")} | {"mask": rand(batch, heads, length, length)}
    device = {n: t.npu().requires_grad_(n != "mask") for n, t in leaves.items()}

    def call(*values, mask=None, p=0.0):
        given = dict(zip((n for n in names if n != "mask"), values, strict=True)) | {"mask": device["mask"]}
        return torch_npu.npu_multi_head_attention(
            *(given[n] for n in names), mask, heads, size, length, length, p, True
        )  # fmt: skip

    differentiable = [device[n] for n in names if n != "mask"]
    split = lambda t: t.view(batch, length, heads, size).transpose(1, 2)  # noqa: E731
    q, k, v = (split(leaves[n] @ leaves[n[0] + "w"].T + leaves[n[0] + "b"]) for n in names[:3])
    p = (q @ k.mT / 2 + leaves["mask"]).softmax(-1)
    want = (p @ v).transpose(1, 2).reshape(batch * length, hidden) @ leaves["ow"].T + leaves["ob"]
    assert_matches(call(*differentiable)[0].detach(), want)
    assert torch.autograd.gradcheck(lambda *v: call(*v)[0], differentiable)
    mask = call(*differentiable, p=0.5)[1]
    assert torch.autograd.gradcheck(lambda *v: call(*v, mask=mask, p=0.5)[0], differentiable)
