"""SwiGLU, rotary embedding and the embedding's gradient at sizes and in layouts that their one-pass kernels meet."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch_npu

import references as R
from cases import assert_matches

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _both_passes(function, arguments: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    """The result of an operator and the gradients of its arguments, which stay what they are: views, of any device."""
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    output = function(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, grad)]


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("layout", ["BSND", "BNSD", "part of qkv"])
def test_rotary_in_the_layouts_of_models(dtype: torch.dtype, mode: str, layout: str) -> None:
    qkv, cos, sin = _normal(2, 33, 3 * 4, 64, dtype=dtype), *(_normal(33, 64, seed=s, dtype=dtype) for s in (1, 2))

    def arguments(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        x, c, s = (t.to(device, dtype) for t in (qkv, cos, sin))
        x = x[:, :, :4] if layout == "part of qkv" else x
        if layout == "BNSD":
            return [x.transpose(1, 2), c[None, None], s[None, None]]
        return [x, c[None, :, None], s[None, :, None]]

    ours, exact = arguments("npu", dtype), arguments("cpu", torch.float64)
    grad = _normal(*exact[0].shape, seed=3, dtype=dtype)
    got = _both_passes(lambda *t: torch_npu.npu_rotary_mul(*t, mode), ours, grad.npu())
    want = _both_passes(lambda *t: R.rotary_mul(*t, mode), exact, grad.double())
    for one, other in zip(got, want, strict=True):
        assert one.dtype == dtype
        assert_matches(one, other, factor=2)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [((37, 2 * 5001), -1), ((3, 8, 1030), 1), ((2, 6), 0)])
def test_swiglu(dtype: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    x = _normal(*shape, dtype=dtype) * 3
    grad = _normal(*R.swiglu(x, dim).shape, seed=1, dtype=dtype)
    want = _both_passes(lambda x: R.swiglu(x, dim), [x.double()], grad.double())
    got = _both_passes(lambda x: torch_npu.npu_swiglu(x, dim), [x.npu()], grad.npu())
    composed = _both_passes(lambda x: torch_npu.npu_swiglu(x, dim), [x.npu().mT.contiguous().mT], grad.npu())
    for one, other, third in zip(got, composed, want, strict=True):
        assert_matches(one, third, factor=2)
        assert_matches(other, third, factor=2)


def test_results_do_not_depend_on_the_threads() -> None:
    x, cos, sin = _normal(4, 65, 8, 64).npu(), _normal(1, 65, 1, 64, seed=1).npu(), _normal(1, 65, 1, 64, seed=2).npu()
    tokens, threads, results = torch.arange(4 * 65, device="npu") % 100, torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        gated = _both_passes(torch_npu.npu_swiglu, [x], x[..., :32].contiguous())
        turned = _both_passes(torch_npu.npu_rotary_mul, [x, cos, sin], x)
        table = torch.ops.aten.embedding_dense_backward(x.view(260, 512), tokens, 100, -1, False)
        results.append([*gated, *turned, table])
    torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


@pytest.mark.parametrize("dtype", [*_DTYPES, torch.float64])
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("padding", [-1, 0, 7])
def test_the_gradient_of_an_embedding_has_the_bits_of_the_cpu(dtype: torch.dtype, index: torch.dtype, padding: int) -> None:
    grad, tokens = _normal(3, 40, 33, dtype=dtype), torch.arange(120, dtype=index).view(3, 40) % 50
    for by_frequency in (False, True):
        ours, theirs = (
            torch.ops.aten.embedding_dense_backward(grad.to(d), tokens.to(d), 61, padding, by_frequency)
            for d in ("npu", "cpu")
        )
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)


def test_the_gradient_of_an_embedding_of_nothing_and_through_a_view() -> None:
    empty = torch.empty(0, dtype=torch.int64, device="npu")
    assert torch.ops.aten.embedding_dense_backward(torch.empty(0, 5, device="npu"), empty, 7, -1, False).count_nonzero() == 0
    tokens = torch.tensor([[1, 2], [2, 0]])
    grads = []
    for device in ("npu", "cpu"):
        table = _normal(4, 6).to(device).requires_grad_()
        grads.append(torch.autograd.grad(F.embedding(tokens.to(device), table).transpose(0, 1).square().sum(), table)[0].cpu())
    torch.testing.assert_close(*grads)
