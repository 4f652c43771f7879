"""Attention of inference: layouts, lengths, paged caches, and attention to chosen keys."""

import pytest
import torch
import torch_npu
from cases import assert_matches, rand
from test_attention import COMPRESSED, attend, visible

N, KV, D = 4, 2, 8


def into(bnsd, layout):
    moves = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}
    moved = bnsd.permute(moves[layout]).contiguous()
    return moved.flatten(2) if layout == "BSH" else moved


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "BNSD_BSND", "BSND_NBSD", "BSH_NBSD"])
@pytest.mark.parametrize("version", [1, 2])
def test_layouts(layout, version):
    q, k, v = rand(2, N, 5, D), rand(2, KV, 7, D), rand(2, KV, 7, D)
    first, last = layout.split("_") if "_" in layout else (layout, layout)
    given = [into(t, first).npu() for t in (q, k, v)]
    if version == 1:
        out, lse = torch_npu.npu_fused_infer_attention_score(
            *given, num_heads=N, num_key_value_heads=KV, scale=0.4, input_layout=layout, softmax_lse_flag=True
        )
    else:
        out, lse = torch_npu.npu_fused_infer_attention_score_v2(
            *given, num_query_heads=N, num_key_value_heads=KV, softmax_scale=0.4, input_layout=layout, return_softmax_lse=True
        )
    want, top, total = attend(q, k, v, scale=0.4)
    assert_matches(out, into(want, last))
    torch.testing.assert_close(lse.cpu(), top + total.log())


def test_lengths_and_causal_mask():
    q, k, v = rand(2, N, 5, D), rand(2, KV, 9, D), rand(2, KV, 9, D)
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        q.npu(), k.npu(), v.npu(), num_query_heads=N, num_key_value_heads=KV, input_layout="BNSD", softmax_scale=0.4,
        actual_seq_qlen=[3, 5], actual_seq_kvlen=[4, 9], sparse_mode=3, atten_mask=COMPRESSED.npu(),
    )  # fmt: skip
    for b, (rows, keys) in enumerate(((3, 4), (5, 9))):
        masked = ~visible(rows, keys, 10**9, keys - rows)
        want = attend(q[b : b + 1, :, :rows], k[b : b + 1, :, :keys], v[b : b + 1, :, :keys], masked, 0.4)[0]
        assert_matches(out[b : b + 1, :, :rows], want)
        assert out[b, :, rows:].eq(0).all()


def paged(rows, lengths, block, order):
    """Rows (total, KV, D) of sequences as a cache (blocks, block, KV, D) with its table."""
    table, cache, begin = [], torch.zeros(len(order), block, *rows.shape[1:], dtype=rows.dtype), 0
    free = iter(order)
    for length in lengths:
        blocks = [next(free) for _ in range(-(-length // block))]
        for i, b in enumerate(blocks):
            part = rows[begin + i * block : begin + min((i + 1) * block, length)]
            cache[b, : len(part)] = part
        begin += length
        table.append(blocks)
    width = max(map(len, table))
    return cache, torch.tensor([t + [0] * (width - len(t)) for t in table], dtype=torch.int32)


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_paged_cache_of_packed_queries(heads_first, masked):
    """As vLLM calls it: query lengths cumulated, key lengths not."""
    lengths, q_ends = [5, 9, 1], [2, 5, 6]
    q, k, v = rand(6, N, D), rand(15, KV, D), rand(15, KV, D)
    caches = []
    for t in (k, v):
        cache, table = paged(t, lengths, 4, [3, 0, 5, 1, 4, 2])
        caches.append((cache.transpose(1, 2).contiguous() if heads_first else cache.flatten(2)).npu())
    mask = {"sparse_mode": 3, "atten_mask": COMPRESSED.npu()} if masked else {}
    out, lse = torch_npu.npu_fused_infer_attention_score_v2(
        q.npu(), *caches, block_table=table.npu(), actual_seq_qlen=q_ends, actual_seq_kvlen=lengths, block_size=4,
        num_query_heads=N, num_key_value_heads=KV, input_layout="TND", softmax_scale=0.4, return_softmax_lse=True, **mask,
    )  # fmt: skip
    row = key = 0
    for end, length in zip(q_ends, lengths, strict=True):
        seen = ~visible(end - row, length, 10**9, length - (end - row)) if masked else None
        parts = (t.transpose(0, 1)[None] for t in (q[row:end], k[key : key + length], v[key : key + length]))
        want, top, total = attend(*parts, seen, 0.4)
        assert_matches(out[row:end], want[0].transpose(0, 1))
        torch.testing.assert_close(lse[row:end].cpu(), (top + total.log())[0].transpose(0, 1))
        row, key = end, key + length


def test_out_form_takes_the_results():
    q, k, v = (rand(1, N, 3, D).npu() for _ in range(3))
    options = {"num_query_heads": N, "input_layout": "BNSD", "softmax_scale": 0.4}
    want = torch_npu.npu_fused_infer_attention_score_v2(q, k, v, **options)
    out = [torch.empty_like(want[0]), torch.empty(1, dtype=torch.float64, device="npu")]
    torch_npu.npu_fused_infer_attention_score_v2.out(q, k, v, **options, workspace=None, out=out)
    assert torch.equal(out[0], want[0])


def test_refusals():
    q = rand(1, N, 3, D).npu()
    with pytest.raises(NotImplementedError, match="quantised queries, caches and results"):
        torch_npu.npu_fused_infer_attention_score(q, q, q, num_heads=N, input_layout="BNSD", quant_scale2=torch.ones(1).npu())
    with pytest.raises(RuntimeError, match="block_table needs the lengths"):
        torch_npu.npu_fused_infer_attention_score(
            q, q[0], q[0], num_heads=N, input_layout="BNSD", block_table=torch.zeros(1, 1).int().npu()
        )


@pytest.mark.parametrize("layout", ["BSND", "TND", "PA_BSND"])
@pytest.mark.parametrize("mode", [0, 3])
def test_lightning_indexer(layout, mode):
    heads, count, lengths = 3, 4, [9, 6]
    q, w = rand(2, 5, heads, D), rand(2, 5, heads)
    keys = [rand(n, 1, D) for n in lengths]
    options = {"sparse_count": count, "sparse_mode": mode, "return_value": True}
    if layout == "BSND":
        key = torch.zeros(2, 9, 1, D).double()
        for b, k in enumerate(keys):
            key[b, : len(k)] = k
        given = (q, key, w)
        options |= {"actual_seq_lengths_key": torch.tensor(lengths).npu()}
    elif layout == "TND":
        given = (q.flatten(0, 1), torch.cat(keys), w.flatten(0, 1))
        options |= {"actual_seq_lengths_query": torch.tensor([5, 10]).npu(), "actual_seq_lengths_key": torch.tensor([9, 15]).npu()}
        options |= {"layout_query": "TND", "layout_key": "TND"}
    else:
        cache, table = paged(torch.cat(keys), lengths, 4, [4, 2, 0, 1, 3])
        given = (q, cache, w)
        options |= {"layout_key": "PA_BSND", "block_table": table.npu(), "actual_seq_lengths_key": torch.tensor(lengths).npu()}
    indices, values = torch_npu.npu_lightning_indexer(*(t.npu() for t in given), **options)
    indices, values = (t.cpu().reshape(2, 5, count) for t in (indices, values))
    for b, k in enumerate(keys):
        scores = ((q[b] @ k[:, 0].T).relu() * w[b][..., None]).sum(1)
        if mode == 3:
            scores = scores.masked_fill(~visible(5, len(k), 10**9, len(k) - 5), -torch.inf)
        chosen, order = (t[:, :count] for t in scores.sort(dim=1, descending=True, stable=True))  # equal scores: the first keys
        assert torch.equal(indices[b], torch.where(chosen.isneginf(), -1, order).int())
        torch.testing.assert_close(values[b], chosen)


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("mode", [0, 3])
@pytest.mark.parametrize("paged_keys", [False, True])
def test_attention_to_chosen_keys(block, mode, paged_keys):
    group, length, queries = 3, 8, 4
    q, q_rope, k, k_rope = rand(2, queries, group, D), rand(2, queries, group, 4), rand(2, length, 1, D), rand(2, length, 1, 4)
    chosen = torch.stack([torch.randperm(length // block)[:3] for _ in range(2 * queries)]).view(2, queries, 1, 3).int()
    chosen[0, 1, 0, 2:] = -1
    options = {"sparse_block_size": block, "sparse_mode": mode, "return_softmax_lse": True, "query_rope": q_rope.npu()}
    keys, ropes = k, k_rope
    if paged_keys:
        keys, table = paged(k.flatten(0, 1), [length, length], 4, [2, 0, 3, 1])
        ropes, _ = paged(k_rope.flatten(0, 1), [length, length], 4, [2, 0, 3, 1])
        options |= {"layout_kv": "PA_BSND", "block_table": table.npu(), "actual_seq_lengths_kv": torch.tensor([length] * 2).npu()}
    out, top, total = torch_npu.npu_sparse_flash_attention(
        q.npu(), keys.npu(), keys.npu(), chosen.npu(), 0.4, key_rope=ropes.npu(), **options
    )
    masked = torch.ones(2, queries, length, dtype=torch.bool)
    for b in range(2):
        for i in range(queries):
            for c in chosen[b, i, 0].tolist():
                if c >= 0:
                    masked[b, i, c * block : (c + 1) * block] = False
    if mode == 3:
        masked |= ~visible(queries, length, 10**9, length - queries)
    join = lambda a, b: torch.cat((a, b), -1).transpose(1, 2)  # noqa: E731
    want, want_top, want_total = attend(join(q, q_rope), join(k, k_rope), k.transpose(1, 2), masked[:, None], 0.4)
    assert_matches(out, want.transpose(1, 2))
    alive = want_total[..., 0].transpose(1, 2)[:, None] > 0
    torch.testing.assert_close(total.cpu()[alive], want_total[..., 0].transpose(1, 2)[:, None][alive])
    torch.testing.assert_close(top.cpu()[alive], want_top[..., 0].transpose(1, 2)[:, None][alive])


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("lse", [False, True])
def test_gradients_of_attention_to_chosen_keys(layout, lse):
    chosen = torch.stack([torch.randperm(6)[:3] for _ in range(8)]).view(2, 4, 1, 3).int()
    tensors = [rand(2, 4, 3, D), rand(2, 6, 1, D), rand(2, 6, 1, D), rand(2, 4, 3, 4), rand(2, 6, 1, 4)]
    options = {"return_softmax_lse": lse}
    if layout == "TND":
        tensors, chosen = [t.flatten(0, 1) for t in tensors], chosen.flatten(0, 1)
        options |= {"layout_query": "TND", "layout_kv": "TND", "actual_seq_lengths_query": torch.tensor([4, 8]).npu()}
        options |= {"actual_seq_lengths_kv": torch.tensor([6, 12]).npu()}
    leaves = [t.npu().requires_grad_() for t in tensors]

    def call(q, k, v, qr, kr):
        return torch_npu.npu_sparse_flash_attention(q, k, v, chosen.npu(), 0.4, query_rope=qr, key_rope=kr, **options)[0]

    assert torch.autograd.gradcheck(call, leaves)


def test_gradient_without_a_value_is_all_of_the_key():
    q, k = rand(1, 2, 3, D).npu().requires_grad_(), rand(1, 4, 1, D).npu().requires_grad_()
    chosen = torch.tensor([[0, 2], [1, 3]]).view(1, 2, 1, 2).int().npu()
    assert torch.autograd.gradcheck(lambda q, k: torch_npu.npu_sparse_flash_attention(q, k, None, chosen, 0.4)[0], (q, k))


def test_missing_gradients_say_so():
    q, k, w = rand(1, 2, 3, D).npu().requires_grad_(), rand(1, 4, 1, D).npu(), rand(1, 2, 3).npu()
    values = torch_npu.npu_lightning_indexer(q, k, w, sparse_count=2, return_value=True)[1]
    with pytest.raises(NotImplementedError, match="npu_lightning_indexer_grad, which is not implemented"):
        values.sum().backward()


def test_the_cache_is_written_in_place():
    key, value, slots = rand(3, 2, 4).npu(), rand(3, 2, 4).npu(), torch.tensor([5, 0, 2]).npu()
    caches = [rand(2, 4, 2, 4).npu() for _ in range(2)]
    want = torch.ops.npu.npu_scatter_pa_kv_cache_functional(key, value, *caches, slots, cache_mode="Norm")
    assert torch_npu.npu_scatter_pa_kv_cache(key, value, *caches, slots, cache_mode="Norm") is None
    assert all(torch.equal(a, b) for a, b in zip(caches, want, strict=True))
    with pytest.raises(RuntimeError, match="cache_mode must be PA_NZ or Norm, but got 'other'"):
        torch_npu.npu_scatter_pa_kv_cache(key, value, *caches, slots, cache_mode="other")
