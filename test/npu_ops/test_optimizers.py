"""Fused optimizer steps, which update the tensors of out= in place."""

import pytest
import torch
import torch_npu
from cases import rand

import references as R


def state(dtype=torch.float64):
    return [t.to(dtype) for t in (rand(4, 5), 0.1 * rand(4, 5), torch.rand(4, 5).double())]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_adam_w(maximize, dtype):
    tensors, grad = state(dtype), rand(4, 5).to(dtype)
    numbers = (0.9**3, 0.999**3, 1e-2, 0.1, 0.9, 0.999, 1e-8)
    out = [t.npu() for t in tensors]
    versions = [t._version for t in out]
    result = torch_npu.npu_apply_adam_w(*numbers, grad.npu(), None, False, maximize, out=out)
    want = R.adam_w(*tensors, *numbers, grad, maximize)
    for got, expected, returned, version in zip(out, want, result, versions, strict=True):
        torch.testing.assert_close(got.cpu(), expected)
        assert returned is got and got._version > version


def test_adam_w_agrees_with_torch():
    parameter = torch.nn.Parameter(rand(6).npu())
    twin = torch.nn.Parameter(parameter.detach().clone())
    optimizer = torch.optim.AdamW([twin], lr=1e-2, weight_decay=0.1)
    m, v = torch.zeros_like(parameter.data), torch.zeros_like(parameter.data)
    for step in range(3):
        grad = rand(6).npu()
        twin.grad = grad.clone()
        optimizer.step()
        torch_npu.npu_apply_adam_w(
            0.9**step, 0.999**step, 1e-2, 0.1, 0.9, 0.999, 1e-8, grad, None, False, False, out=(parameter.data, m, v)
        )
    torch.testing.assert_close(parameter, twin)


def test_amsgrad_keeps_the_maximum():
    tensors, grad, top = state(), rand(4, 5), torch.full((4, 5), 0.9).double().npu()
    out = [t.npu() for t in tensors]
    torch_npu.npu_apply_adam_w(0.9, 0.999, 1e-2, 0.0, 0.9, 0.999, 1e-8, grad.npu(), top, True, False, out=out)
    torch.testing.assert_close(top.cpu(), torch.maximum(torch.full((4, 5), 0.9).double(), out[2].cpu()))


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam(nesterov):
    tensors, grad = state(), rand(4, 5)
    out = [t.npu() for t in tensors]
    torch_npu.npu_apply_adam(0.9, 0.999, 1e-2, 0.9, 0.999, 1e-8, grad.npu(), False, nesterov, out=out)
    for got, want in zip(out, R.adam(*tensors, 0.9, 0.999, 1e-2, 0.9, 0.999, 1e-8, grad, nesterov), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize(("limit", "norm"), [(-1.0, 0.0), (1.0, 4.0), (4.0, 1.0)])
def test_bert_adam(limit, norm):
    tensors, grad = state(), rand(4, 5)
    out = [t.npu() for t in tensors]
    torch_npu.npu_bert_apply_adam(1e-2, 0.9, 0.99, 1e-6, grad.npu(), limit, norm, 0.1, out=out)
    for got, want in zip(out, R.bert_adam(*tensors, 1e-2, 0.9, 0.99, 1e-6, grad, limit, norm, 0.1), strict=True):
        torch.testing.assert_close(got.cpu(), want)


def test_refusals():
    grad = rand(3).npu()
    with pytest.raises(RuntimeError, match=r"needs out=\(parameter, first moment, second moment\)"):
        torch_npu.npu_apply_adam_w(0.9, 0.999, 1e-2, 0.0, 0.9, 0.999, 1e-8, grad, None, False, False)
    with pytest.raises(RuntimeError, match="out must have grad's sizes"):
        wrong = [torch.zeros(4, device="npu").double() for _ in range(3)]
        torch_npu.npu_apply_adam_w(0.9, 0.999, 1e-2, 0.0, 0.9, 0.999, 1e-8, grad, None, False, False, out=wrong)
    with pytest.raises(NotImplementedError, match="adam_mode 1"):
        torch_npu.npu_bert_apply_adam(1e-2, 0.9, 0.99, 1e-6, grad, -1.0, 0.0, 0.1, None, 1, out=[grad.clone() for _ in range(3)])


def test_non_finite_check():
    good, bad = torch.ones(3, device="npu"), torch.tensor([1.0, float("inf")], device="npu")
    assert torch.ops.npu._amp_foreach_non_finite_check([good, good]) is False
    assert torch.ops.npu._amp_foreach_non_finite_check([good, bad]) is True
