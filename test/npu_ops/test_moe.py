"""npu_moe_init_routing_v2: ranges of experts, capacities, counts and quantisation; gradients of optional arguments."""

import pytest
import torch
import torch_npu
from cases import rand


def routed(expert_idx, first, last):
    """Pairs of experts [first, last) by expert, stably: (pair, expert)."""
    flat = expert_idx.flatten()
    return [(i, e) for e in range(first, last) for i in range(len(flat)) if flat[i] == e]


@pytest.mark.parametrize("span", [(0, 6), (2, 5)])
@pytest.mark.parametrize("row_idx_type", [0, 1])
@pytest.mark.parametrize("counts_type", [0, 1, 2])
def test_without_dropping(span, row_idx_type, counts_type):
    x, expert_idx, scale = rand(5, 4), torch.randint(0, 6, (5, 3), dtype=torch.int32), rand(5).float()
    out, row_idx, counts, out_scale = torch_npu.npu_moe_init_routing_v2(
        x.npu(), expert_idx.npu(), scale=scale.npu(), expert_num=6, active_expert_range=list(span), row_idx_type=row_idx_type,
        expert_tokens_num_type=counts_type, expert_tokens_num_flag=True,
    )  # fmt: skip
    pairs = routed(expert_idx, *span)
    n = len(pairs)
    assert torch.equal(out.cpu()[:n], torch.stack([x[i // 3] for i, _ in pairs]))
    assert torch.equal(out_scale.cpu()[:n], torch.stack([scale[i // 3] for i, _ in pairs]))
    source = torch.tensor([i for i, _ in pairs])
    if row_idx_type:
        assert torch.equal(row_idx.cpu()[:n].long(), source)
    else:
        want = torch.full((15,), -1)
        want[source] = torch.arange(n)
        assert torch.equal(row_idx.cpu().long(), want)
    by_expert = torch.tensor([sum(e == k for _, e in pairs) for k in range(*span)])
    if counts_type == 2:
        used = [(k, int(c)) for k, c in zip(range(*span), by_expert, strict=True) if c]
        assert counts.cpu().tolist() == [list(u) for u in used] + [[0, 0]] * (6 - len(used))
    else:
        assert torch.equal(counts.cpu(), by_expert if counts_type else by_expert.cumsum(0))


def test_with_a_capacity():
    x, expert_idx = rand(5, 4), torch.randint(0, 4, (5, 2), dtype=torch.int32)
    out, row_idx, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x.npu(), expert_idx.npu(), expert_capacity=2, expert_num=4, drop_pad_mode=1, expert_tokens_num_type=1
    )
    want, where, seen = torch.zeros(8, 4).double(), torch.full((10,), -1), [0] * 4
    for i, e in routed(expert_idx, 0, 4):
        if seen[e] < 2:
            want[2 * e + seen[e]] = x[i // 2]
            where[i] = 2 * e + seen[e]
        seen[e] += 1
    assert torch.equal(out.cpu(), want) and torch.equal(row_idx.cpu().long(), where)
    assert counts.tolist() == seen


def test_quantised_rows():
    x, expert_idx = rand(5, 4).float(), torch.randint(0, 3, (5, 2), dtype=torch.int32)
    pairs = routed(expert_idx, 0, 3)
    rows = torch.stack([x[i // 2] for i, _ in pairs])
    options = {"expert_num": 3, "active_expert_range": [0, 3]}
    out, _, _, scale = torch_npu.npu_moe_init_routing_v2(x.npu(), expert_idx.npu(), quant_mode=1, **options)
    want_scale = rows.abs().amax(1) / 127
    torch.testing.assert_close(scale.cpu(), want_scale)
    assert torch.equal(out.cpu(), (rows / want_scale[:, None]).round().to(torch.int8))
    s, o = torch.tensor([[10.0], [20.0], [30.0]]), torch.tensor([[1.0], [-1.0], [0.0]])
    out = torch_npu.npu_moe_init_routing_v2(
        x.npu(), expert_idx.npu(), quant_mode=0, scale=s.npu(), offset=o.npu(), **options
    )[0]
    experts = torch.tensor([e for _, e in pairs])
    assert torch.equal(out.cpu(), (rows * s[experts] + o[experts]).round().clamp(-128, 127).to(torch.int8))


@pytest.mark.parametrize("pad", [False, True])
def test_gradients_of_probabilities(pad):
    chosen = torch.zeros(6, 4, dtype=torch.bool).scatter(1, rand(6, 4).topk(2).indices, True).npu()
    tokens, probs = rand(6, 5).npu().requires_grad_(), rand(6, 4).npu().requires_grad_()

    def permute(tokens, probs):
        return torch_npu.npu_moe_token_permute_with_routing_map(
            tokens, chosen, probs=probs, num_out_tokens=12, drop_and_pad=pad
        )[:2]

    assert torch.autograd.gradcheck(permute, (tokens, probs))
    order = torch_npu.npu_moe_token_permute_with_routing_map(tokens, chosen, num_out_tokens=12, drop_and_pad=pad)[2]
    rows = rand(12, 5).npu().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda r, p: torch_npu.npu_moe_token_unpermute_with_routing_map(
            r, order, [6, 5], probs=p, routing_map=chosen, drop_and_pad=pad
        ),
        (rows, probs),
    )


def test_permute_and_unpermute_are_inverse():
    tokens, indices = rand(6, 4).npu(), torch.randint(0, 4, (6, 2)).npu()
    permuted, order = torch_npu.npu_moe_token_permute(tokens, indices)
    weights = torch.full((6, 2), 0.5, dtype=torch.float64, device="npu")
    torch.testing.assert_close(torch_npu.npu_moe_token_unpermute(permuted, order, weights), tokens)


def test_int8_products_with_scales():
    x, w = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((6, 8), (2, 8, 3)))
    scale, per_token = torch.rand(2, 3), torch.rand(6)
    y = torch_npu.npu_grouped_matmul(
        [x.npu()], [w.npu()], scale=[scale.npu()], per_token_scale=[per_token.npu()], group_list=torch.tensor([2, 6]).npu(),
        split_item=3, group_type=0, output_dtype=torch.bfloat16,
    )[0]  # fmt: skip
    want = torch.cat([(x[:2].double() @ w[0].double()) * scale[0], (x[2:].double() @ w[1].double()) * scale[1]]) * per_token[:, None]
    torch.testing.assert_close(y.cpu(), want.to(torch.bfloat16))


def test_list_overload_with_several_results():
    x, w = rand(5, 4), [rand(4, 3), rand(4, 3)]
    y = torch_npu.npu_grouped_matmul([x.npu()], [t.npu() for t in w], group_list=[2, 5], split_item=1)
    torch.testing.assert_close([t.cpu() for t in y], [x[:2] @ w[0], x[2:] @ w[1]])
