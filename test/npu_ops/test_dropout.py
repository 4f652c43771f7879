"""Packed dropout masks: sizes, probabilities, repeatability, gradients."""

import pytest
import torch
import torch_npu


def unpack(packed, sizes):
    bits = packed.cpu()[:, None].bitwise_right_shift(torch.arange(8, dtype=torch.uint8)).bitwise_and(1).flatten()
    return bits[: torch.Size(sizes).numel()].view(sizes)


@pytest.mark.parametrize("sizes", [(), (0,), (17, 19), (128,), (3, 5, 7)])
def test_dropout_is_its_mask(sizes):
    x = torch.randn(sizes, dtype=torch.float64).npu().requires_grad_()
    out, mask = torch_npu._npu_dropout(x, 0.4)
    elements = torch.Size(sizes).numel()
    assert mask.dtype == torch.uint8 and mask.numel() == (elements + 127) // 128 * 16
    keep = unpack(mask, sizes).npu()
    torch.testing.assert_close(out, x * keep / 0.6)
    out.sum().backward()
    torch.testing.assert_close(x.grad, keep.double() / 0.6)
    torch.testing.assert_close(torch_npu.npu_dropout_do_mask(x, mask, 0.4)[0], out)
    torch.testing.assert_close(torch.ops.npu.npu_dropout_backward(x, mask, 0.4), out)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_probability(p):
    mask = unpack(torch_npu._npu_dropout_gen_mask(torch.empty(1, device="npu"), [100, 1000], p, 3, 8), (100, 1000))
    rate = mask.double().mean().item()
    assert abs(rate - (1 - p)) < 4 * (p * (1 - p) / 1e5) ** 0.5 + 1e-12
    rows = mask.double().mean(1)
    assert (rows - (1 - p)).abs().max() < 6 * (p * (1 - p) / 1e3) ** 0.5 + 1e-12


def test_masks_depend_on_seed_and_offset_only():
    x = torch.empty(1, device="npu")
    make = lambda seed, offset: torch_npu._npu_dropout_gen_mask(x, [4096], 0.5, seed, offset)  # noqa: E731
    assert torch.equal(make(1, 4), make(1, 4))
    agreement = lambda a, b: (unpack(a, (4096,)) == unpack(b, (4096,))).double().mean()  # noqa: E731
    for other in (make(2, 4), make(1, 8), make(4, 1)):
        assert 0.45 < agreement(make(1, 4), other) < 0.55


def test_generator_state_repeats_a_mask():
    x = torch.ones(1000, device="npu")
    torch.npu.manual_seed(7)
    first = torch_npu._npu_dropout(x, 0.5)[1]
    second = torch_npu._npu_dropout(x, 0.5)[1]
    torch.npu.manual_seed(7)
    assert torch.equal(torch_npu._npu_dropout(x, 0.5)[1], first) and not torch.equal(first, second)


@pytest.mark.parametrize("dim", [0, -1])
def test_add_softmax_dropout(dim):
    x1, x2 = (torch.randn(3, 5, dtype=torch.float64).npu().requires_grad_() for _ in range(2))
    mask, softmax, out = torch_npu.npu_dropout_with_add_softmax(x1, x2, 0.5, 0.3, dim)
    torch.testing.assert_close(softmax, (x2 + 0.5 * x1).softmax(dim))
    torch.testing.assert_close(out, softmax * unpack(mask, (3, 5)).npu() / 0.7)

    def repeat(a, b):
        torch.npu.manual_seed(1)
        return torch_npu.npu_dropout_with_add_softmax(a, b, 0.5, 0.3, dim)[2]

    assert torch.autograd.gradcheck(repeat, (x1, x2))


def test_bad_probability_and_short_mask():
    x = torch.ones(300, device="npu")
    with pytest.raises(RuntimeError, match="from 0 to 1, but got 1.5"):
        torch_npu._npu_dropout(x, 1.5)
    with pytest.raises(RuntimeError, match="holds 128 bits, but the 300 elements"):
        torch_npu.npu_dropout_do_mask(x, torch.zeros(16, dtype=torch.uint8, device="npu"), 0.5)
