"""torch.compile and autocast over npu operators."""

import pytest
import torch
import torch_npu


def llama_block(x, gamma, w, cos, sin):
    h = torch_npu.npu_rms_norm(x, gamma, 1e-6)[0]
    q = torch_npu.npu_rotary_mul(h.unflatten(-1, (2, -1)), cos, sin)
    a = torch_npu.npu_fusion_attention(q, q, q, 2, "BSND", scale=0.5)[0].flatten(2)
    return torch_npu.npu_swiglu(torch_npu.npu_linear(a.flatten(0, 1), w)).sum()


def inputs(length):
    sizes = ((2, length, 8), (8,), (12, 8), (1, length, 1, 4), (1, length, 1, 4))
    return [torch.randn(s, device="npu", requires_grad=i < 3) for i, s in enumerate(sizes)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_step_equals_eager(dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(llama_block, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for length in (5, 6, 7):
        given = inputs(length)
        want = llama_block(*given)
        want_grads = torch.autograd.grad(want, given[:3])
        got = compiled(*given)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, given[:3]), want_grads)


def test_dropout_under_compile_repeats_its_mask_in_backward():
    torch._dynamo.reset()
    q = torch.randn(1, 2, 6, 4, device="npu", requires_grad=True)
    step = torch.compile(
        lambda q: torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5)[0], backend="aot_eager", fullgraph=True
    )
    torch.npu.manual_seed(3)
    step(q).sum().backward()
    compiled, q.grad = q.grad, None
    torch.npu.manual_seed(3)
    torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5)[0].sum().backward()
    torch.testing.assert_close(compiled, q.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_rules(dtype):
    x, w, b = (torch.randn(s, device="npu", requires_grad=True) for s in ((4, 8), (6, 8), (6,)))
    q = torch.randn(1, 2, 3, 8, device="npu")
    with torch.autocast("npu", dtype=dtype):
        y = torch_npu.npu_linear(x, w, b)
        assert y.dtype == dtype
        assert torch_npu.npu_bmmV2(x[None], w.t()[None], []).dtype == dtype
        assert torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD")[0].dtype == dtype
        assert torch_npu.npu_cross_entropy_loss(y, torch.zeros(4, dtype=torch.long, device="npu"))[0].dtype == torch.float32
        assert torch_npu.npu_rms_norm(y, torch.ones(6, device="npu"))[0].dtype == dtype
        assert torch_npu.npu_swiglu(y).dtype == dtype
    y.float().sum().backward()
    assert x.grad.dtype == w.grad.dtype == b.grad.dtype == torch.float32


def test_results_repeat_bit_for_bit():
    given = inputs(64)
    first = torch.autograd.grad(llama_block(*given), given[:3])
    second = torch.autograd.grad(llama_block(*given), given[:3])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_activation_checkpointing_repeats_dropout():
    q = torch.randn(1, 2, 6, 4, device="npu", requires_grad=True)
    run = lambda q: torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5)[0]  # noqa: E731
    torch.npu.manual_seed(3)
    torch.utils.checkpoint.checkpoint(run, q, use_reentrant=False).sum().backward()
    checkpointed, q.grad = q.grad, None
    torch.npu.manual_seed(3)
    run(q).sum().backward()
    assert torch.equal(checkpointed, q.grad)
