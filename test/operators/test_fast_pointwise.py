"""Pointwise operators on plain tensors, which take a way of their own, give the CPU's results to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

_SPECIAL = (0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-40, 3.4e38, 65504.0, 1e-8, 2.5)
_SHAPES = ((), (1,), (7,), (0,), (4, 0, 2), (8, 8), (3, 1, 5), (33, 257), (128, 256), (129, 256))
_LARGE = (1025, 8193)  # float32 of these results are written past the caches; not a multiple of a vector

_FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "add alpha": lambda a, b: torch.add(a, b, alpha=0.3),
    "add number": lambda a, b: a + 1.1,
    "add_": lambda a, b: a.clone().add_(b, alpha=0.77),
    "add_ itself": lambda a, b: (c := a.clone()).add_(c),
    "sub": lambda a, b: a - b,
    "sub alpha": lambda a, b: torch.sub(a, b, alpha=-1.7),
    "sub zero times": lambda a, b: torch.sub(a, b, alpha=0),
    "sub number": lambda a, b: a - 0.1,
    "rsub": lambda a, b: 1 - a,
    "mul": lambda a, b: a * b,
    "mul number": lambda a, b: a * 0.3,
    "mul_ number": lambda a, b: a.clone().mul_(1.3),
    "mul.Scalar": lambda a, b: torch.ops.aten.mul.Scalar(a, 1.3),
    "mul_.Scalar": lambda a, b: torch.ops.aten.mul_.Scalar(a.clone(), 1.3),  # what C++ calls: another rounding
    "div": lambda a, b: a / b,
    "div number": lambda a, b: a / 3.3,
    "div_": lambda a, b: a.clone().div_(b),
    "reciprocal": lambda a, b: 2.0 / a,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "square": lambda a, b: a**2,
    "relu": lambda a, b: a.relu(),
    "relu_": lambda a, b: a.clone().relu_(),
    "threshold_backward": lambda a, b: torch.ops.aten.threshold_backward(a, b, 0),
    "clamp": lambda a, b: a.clamp(-0.3, 1.7),
    "clamp min": lambda a, b: a.clamp(0),
    "clamp nan": lambda a, b: a.clamp(math.nan, 1.0),
    "clamp crossed": lambda a, b: a.clamp(1.7, -0.3),
    "fill_": lambda a, b: a.clone().fill_(1.3),
    "fill_ -0": lambda a, b: a.clone().fill_(-0.0),
    "zero_": lambda a, b: a.clone().zero_(),
    "copy_": lambda a, b: a.clone().copy_(b),
}


def _operand(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()
    count = min(values.numel(), len(_SPECIAL))
    values.view(-1)[:count] = torch.tensor(_SPECIAL)[torch.randperm(len(_SPECIAL), generator=generator)[:count]]
    return values.to(dtype)


def _bits(t: torch.Tensor) -> torch.Tensor:
    """The tensor as integers, with one bit pattern for every NaN."""
    t = torch.where(t.isnan(), torch.full_like(t, math.nan), t)
    return t.view(torch.int32 if t.dtype == torch.float32 else torch.int16)


def _check(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a, b = _operand(shape, dtype, 1), _operand(shape, dtype, 2)
    ours, theirs = _FUNCTIONS[name](a.npu(), b.npu()), _FUNCTIONS[name](a, b)
    assert ours.device.type == "npu"
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert torch.equal(_bits(ours.cpu()), _bits(theirs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_equals_the_cpu(name: str, dtype: torch.dtype) -> None:
    for shape in _SHAPES:
        _check(name, shape, dtype)


@pytest.mark.parametrize("name", ["add", "mul number", "relu", "neg"])
def test_large_results_equal_the_cpu(name: str) -> None:
    _check(name, _LARGE, torch.float32)


def test_what_is_not_plain_takes_the_usual_way() -> None:
    a, b = _operand((6, 4), torch.float32, 1), _operand((4, 6), torch.float32, 2)
    assert torch.equal(_bits((a.npu() + b.npu().t()).cpu()), _bits(a + b.t()))
    assert torch.equal(_bits((a.npu() * b.npu()[:, 0]).cpu()), _bits(a * b[:, 0]))
    lazily_negated = torch.view_as_complex(torch.ones(3, 2)).npu().conj().imag
    assert (lazily_negated * 2).tolist() == [-2.0] * 3
    zeros_without_memory = torch._efficientzerotensor((3,), device="npu")
    assert zeros_without_memory.clone().tolist() == [0.0] * 3
    assert torch.ones(3, device="npu").copy_(zeros_without_memory).tolist() == [0.0] * 3


def test_what_has_to_be_refused_is_refused() -> None:
    t = torch.zeros(8, device="npu")
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        t[1:].add_(t[:-1])
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        t[1:].copy_(t[:-1])
    with pytest.raises(RuntimeError, match="npu:0 and cpu"):
        t.add_(torch.ones(8))
    with pytest.raises(RuntimeError, match="npu:0 and npu:1"):
        t + torch.ones(8, device="npu:1")


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.fill_(1e300),
        lambda t: torch.add(t, t, alpha=1e300),
        lambda t: t.sub_(t, alpha=1e300),
        lambda t: t.clamp(max=1e300),
    ],
)
def test_numbers_that_float32_does_not_hold_are_refused(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to type float without overflow"):
        call(torch.arange(6.0, device="npu"))


def test_versions_count() -> None:
    t = torch.ones(4, device="npu")
    before = t._version
    t.add_(1).mul_(t).zero_().fill_(2).copy_(torch.ones(4))
    assert t._version == before + 5
