"""Layers with kernels of their own (layer, RMS and batch norm, softmax, dropout, GELU, SiLU): values, gradients, statistics.

The measure is float64: a result may be off by twice what the CPU device's result of the same type is off (both round,
in different orders), plus a few units in the last place of the largest value. Odd sizes, missing parameters, and
layouts that the kernels leave to the general path; so are tensors below 4096 elements, but for GELU and SiLU, whose
kernels serve every size and layout.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from instruction_sets import CAPABILITIES, run_again
from torch_cann import _C

_Function = Callable[..., torch.Tensor]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _run(function: _Function, arguments: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    """The function's value and the gradients of its arguments, on the CPU."""
    leaves = [argument.detach().clone().requires_grad_() for argument in arguments]
    output = function(*leaves)
    gradients = torch.autograd.grad(output, leaves, grad)
    return [tensor.detach().cpu() for tensor in (output, *gradients)]


def _check(function: _Function, arguments: list[torch.Tensor], grad: torch.Tensor) -> None:
    """npu against float64, measured by the CPU's error; the same again gives the same bits."""
    exact = _run(function, [argument.double() for argument in arguments], grad.double())
    cpu = _run(function, arguments, grad)
    npu, again = (_run(function, [argument.npu() for argument in arguments], grad.npu()) for _ in range(2))
    for ours, second, theirs, want in zip(npu, again, cpu, exact, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours, second)
        error, cpu_error = ((result.double() - want).abs().max() for result in (ours, theirs))
        slack = 4 * torch.finfo(ours.dtype).eps * want.abs().max().clamp(min=1e-30)
        assert error <= 2 * cpu_error + slack, f"error {error:.3g}, the CPU's {cpu_error:.3g}"


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1, 5000), (2000, 3), (5, 60, 17), (256, 384), (64, 1000)])
@pytest.mark.parametrize(("weight", "bias"), list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("dtype", _DTYPES)
def test_layer_norm(shape: tuple[int, ...], weight: bool, bias: bool, dtype: torch.dtype) -> None:
    columns = shape[-1]
    parameters = [_normal(columns, seed=seed).to(dtype) for seed, given in ((1, weight), (2, bias)) if given]

    def norm(x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        rest = list(given)
        return F.layer_norm(x, (columns,), rest.pop(0) if weight else None, rest.pop(0) if bias else None)

    _check(norm, [(_normal(*shape) * 3 + 1).to(dtype), *parameters], _normal(*shape, seed=3).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_with_float32_parameters(dtype: torch.dtype) -> None:
    x, weight, bias = (_normal(50, 200) + 2).to(dtype), _normal(200, seed=1), _normal(200, seed=2)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            weight, bias = weight.double(), bias.double()
        return F.layer_norm(x, (200,), weight, bias)

    _check(norm, [x, weight, bias], _normal(50, 200, seed=3).to(dtype))
    moments = [torch.native_layer_norm(x.to(d), (200,), weight.to(d), None, 1e-5)[1:] for d in ("npu", "cpu")]
    for ours, theirs in zip(*moments, strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_layer_norm_of_what_is_not_finite(dtype: torch.dtype) -> None:
    x = _normal(40, 201).to(dtype)
    x[1, 3], x[2, 4], x[3, 200] = float("nan"), float("inf"), float("-inf")
    ours, theirs = (F.layer_norm(x.to(device), (201,)).cpu().isnan() for device in ("npu", "cpu"))
    assert torch.equal(ours, theirs)
    assert ours.any(1).sum() == 3


@pytest.mark.parametrize("mask", list(itertools.product([True, False], repeat=3)))
def test_layer_norm_gradients_that_are_asked_for(mask: tuple[bool, ...]) -> None:
    x, dy, weight, bias = _normal(67, 130), _normal(67, 130, seed=1), _normal(130, seed=2), _normal(130, seed=3)
    _, mean, rstd = torch.native_layer_norm(x, (130,), weight, bias, 1e-5)
    ours, theirs = (
        torch.ops.aten.native_layer_norm_backward(
            dy.to(d), x.to(d), (130,), mean.to(d), rstd.to(d), weight.to(d), bias.to(d), mask)
        for d in ("npu", "cpu")
    )  # fmt: skip
    for one, other, wanted in zip(ours, theirs, mask, strict=True):
        assert (one is not None) == wanted
        if wanted:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)


def test_layer_norm_over_two_dimensions_and_far_from_zero() -> None:
    weight, bias = _normal(6, 5, seed=1), _normal(6, 5, seed=2)
    _check(lambda x, w, b: F.layer_norm(x, (6, 5), w, b), [_normal(200, 6, 5), weight, bias], _normal(200, 6, 5))
    _check(lambda x: F.layer_norm(x, (300,)), [_normal(40, 300) + 1000], _normal(40, 300))


def test_layer_norm_left_to_the_general_path() -> None:
    _check(lambda x: F.layer_norm(x.t(), (50,)), [_normal(50, 400)], _normal(400, 50))
    for dtype in (torch.bfloat16, torch.float64):
        x = _normal(4, 8).to(dtype)
        torch.testing.assert_close(F.layer_norm(x.npu(), (8,)).cpu(), F.layer_norm(x, (8,)), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(torch.ones(4, 8).npu(), (7,))
    assert F.layer_norm(torch.ones(0, 8).npu(), (8,)).shape == (0, 8)


@pytest.mark.parametrize("shape", [(3, 5), (1, 5000), (2000, 3), (5, 60, 17), (256, 384)])
@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_rms_norm(shape: tuple[int, ...], weight: bool, dtype: torch.dtype) -> None:
    parameters = [_normal(shape[-1], seed=1).to(dtype)] if weight else []
    _check(lambda x, *w: F.rms_norm(x, shape[-1:], *w), [(_normal(*shape) * 3 + 1).to(dtype), *parameters],
           _normal(*shape, seed=3).to(dtype))  # fmt: skip


def test_rms_norm_of_other_kinds() -> None:
    weight = _normal(60, seed=1)
    _check(lambda x, w: F.rms_norm(x.t(), (60,), w, eps=0.1), [_normal(60, 90), weight], _normal(90, 60))
    x = _normal(90, 60)
    for dtype in (torch.float64, torch.complex64):
        ours, theirs = (F.rms_norm(x.to(device, dtype), (60,)).cpu() for device in ("npu", "cpu"))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.rms_norm(x.npu(), (61,))
    batched = torch.func.vmap(lambda row: F.rms_norm(row, (60,), weight.npu()))(x.npu())
    torch.testing.assert_close(batched.cpu(), F.rms_norm(x, (60,), weight))
    with torch.inference_mode():
        torch.testing.assert_close(F.rms_norm(x.npu(), (60,)).cpu(), F.rms_norm(x, (60,)))


def test_rms_norm_has_higher_derivatives() -> None:
    x, weight, direction = _normal(90, 60), _normal(60, seed=1), _normal(90, 60, seed=2)

    def second(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [tensor.to(device, dtype).requires_grad_() for tensor in (x, weight)]
        output = F.rms_norm(leaves[0], (60,), leaves[1]).square().sum()
        first = torch.autograd.grad(output, leaves, create_graph=True)
        return [grad.cpu().double() for grad in torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]

    for ours, want in zip(second("npu", torch.float32), second("cpu", torch.float64), strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-4, atol=1e-3)
    forward = torch.func.jvp(lambda x: F.rms_norm(x, (60,)), (x.npu(),), (direction.npu(),))[1]
    torch.testing.assert_close(forward.cpu(), torch.func.jvp(lambda x: F.rms_norm(x, (60,)), (x,), (direction,))[1])


@pytest.mark.parametrize("shape", [(4, 3), (2000, 3), (200, 3, 17), (2, 1, 60, 60), (16, 32, 32, 32), (50, 17, 3, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape: tuple[int, ...], affine: bool) -> None:
    parameters = [_normal(shape[1], seed=seed) for seed in (1, 2)] if affine else []
    _check(lambda x, *p: F.batch_norm(x, None, None, *p, training=True), [_normal(*shape) * 2 + 1, *parameters],
           _normal(*shape, seed=3))  # fmt: skip


def test_batch_norm_statistics() -> None:
    x = _normal(60, 3, 5, 5) + 2
    layers = [torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3).npu()]
    for step, layer in itertools.product(range(3), layers):
        layer((x + step).to(layer.weight.device))
    for ours, theirs in zip(layers[1].buffers(), layers[0].buffers(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-6)
    for layer in layers:
        layer.eval()
    torch.testing.assert_close(layers[1](x.npu()).cpu(), layers[0](x), rtol=1e-6, atol=1e-6)


def test_batch_norm_left_to_the_general_path() -> None:
    x = _normal(40, 6, 5, 5).to(memory_format=torch.channels_last)
    _check(lambda x: F.batch_norm(x, None, None, training=True), [x], _normal(40, 6, 5, 5))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(torch.ones(1, 3).npu(), None, None, training=True)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (300, 2, 16), (37, 129), (2, 5000), (2000, 3), (256, 2048)])
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_softmax(function: _Function, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _check(lambda x: function(x, -1), [(_normal(*shape) * 5).to(dtype)], _normal(*shape, seed=1).to(dtype))


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax_left_to_the_general_path(function: _Function) -> None:
    x = _normal(50, 90)
    _check(lambda x: function(x, 0), [x], x)
    _check(lambda x: function(x.t(), -1), [x], x.t())
    torch.testing.assert_close(function(x.double().npu(), -1).cpu(), function(x.double(), -1), rtol=0, atol=0)
    assert function(torch.ones(3, 0).npu(), -1).shape == (3, 0)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_of_what_is_not_finite(function: _Function, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, -inf, 1.0] * 7, [-inf] * 21, [inf] + [0.0] * 20, [0.0] * 20 + [nan], [1e38] + [-1e38] * 20]).repeat(50, 1).to(dtype)
    torch.testing.assert_close(function(x.npu(), -1).cpu(), function(x, -1), equal_nan=True)


_ACTIVATIONS: dict[str, _Function] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "silu_": lambda x: F.silu(x.clone(), inplace=True),
}


@pytest.mark.parametrize("shape", [(1,), (3, 5), (4096,), (37, 129), (4097,), (256, 1536), (1500, 2000)])
@pytest.mark.parametrize("name", _ACTIVATIONS)
@pytest.mark.parametrize("dtype", _DTYPES)
def test_activations(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _check(_ACTIVATIONS[name], [(_normal(*shape) * 4).to(dtype)], _normal(*shape, seed=1).to(dtype))


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations_of_other_layouts(name: str) -> None:
    function, image = _ACTIVATIONS[name], _normal(4, 8, 16, 16).to(memory_format=torch.channels_last)
    _check(function, [image], _normal(4, 8, 16, 16))
    _check(function, [image], _normal(4, 8, 16, 16).to(memory_format=torch.channels_last))
    _check(lambda x: function(x.t()), [_normal(70, 90)], _normal(90, 70))
    _check(lambda x: function(x[:, ::2]), [_normal(70, 180)], _normal(70, 90))
    x = _normal(90, 70)
    torch.testing.assert_close(function(x.double().npu()).cpu(), function(x.double()), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="approximate"):
        F.gelu(x.npu(), approximate="none of these")


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations_at_the_ends_of_the_range(name: str, dtype: torch.dtype) -> None:
    inf, nan, large = float("inf"), float("nan"), torch.finfo(dtype).max
    ends = [0.0, -0.0, 30.0, -30.0, 6e-5, 1e-40, -1e-40, 5.75, -5.75, 14.0, -14.0, large, -large, inf, -inf, nan]
    x = torch.tensor(ends).to(dtype)
    ours, exact = (_run(_ACTIVATIONS[name], [leaf], torch.ones_like(leaf)) for leaf in (x.npu(), x.double()))
    slack = 2e-6 if dtype == torch.float32 else 1e-3
    for result, want in zip(ours, exact, strict=True):
        torch.testing.assert_close(result, want.to(dtype), rtol=slack, atol=slack, equal_nan=True)
    value, want = ours[0], exact[0].to(dtype)
    certain = (x.abs() < 1e-30) | (x.abs() > 20)  # no digits are lost
    assert torch.equal(value[certain].signbit() | want[certain].isnan(), want[certain].signbit() | want[certain].isnan())


def _values_and_gradients(function: _Function, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf, grad)
    return torch.stack([value.detach(), gradient])


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations_do_not_depend_on_an_elements_place(name: str, dtype: torch.dtype) -> None:
    function, x, grad = _ACTIVATIONS[name], (_normal(700, 17) * 3).to(dtype).npu(), _normal(700, 17).to(dtype).npu()
    whole = _values_and_gradients(function, x, grad)
    for rows in (1, 3, 256):  # a micro-batch gives what it gives within the whole batch
        parts = zip(x.split(rows), grad.split(rows), strict=True)
        assert torch.equal(whole, torch.cat([_values_and_gradients(function, *part) for part in parts], 1))
    flat, flat_grad, flat_whole = x.flatten(), grad.flatten(), whole.flatten(1)
    for length in range(1, 36):  # vectors, and rests of every length
        piece = slice(length, 2 * length)
        assert torch.equal(_values_and_gradients(function, flat[piece], flat_grad[piece]), flat_whole[:, piece])
    for columns in (slice(0, 1), slice(1, 17, 3), slice(2, 15)):  # gaps
        strided = _values_and_gradients(function, x[:, columns], grad[:, columns])
        assert torch.equal(strided, whole[:, :, columns])
    assert torch.equal(_values_and_gradients(function, x.t(), grad.t()), whole.transpose(1, 2))
    assert torch.equal(_values_and_gradients(function, x, grad.t().contiguous().t()), whole)
    ones = _values_and_gradients(function, x, torch.ones_like(x))
    assert torch.equal(_values_and_gradients(function, x, torch.ones((), dtype=dtype).npu().expand(700, 17)), ones)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_activations_into_given_tensors(dtype: torch.dtype) -> None:
    aten, x, grad = torch.ops.aten, _normal(33, 21).to(dtype).npu(), _normal(33, 21, seed=1).to(dtype).npu()
    for make in (torch.empty_like, lambda model: torch.empty(21, 33, 2).to(model)[..., 1].t(), lambda m: m.new_empty(0)):
        out = make(x)
        assert aten.gelu.out(x, approximate="tanh", out=out) is out
        assert torch.equal(out, F.gelu(x, approximate="tanh"))
        assert torch.equal(aten.silu.out(x, out=make(x)), F.silu(x))
        gradients = aten.gelu_backward.grad_input(grad, x, grad_input=make(x)), aten.gelu_backward(grad, x)
        assert torch.equal(*gradients)
        gradients = aten.silu_backward.grad_input(grad, x, grad_input=make(x)), aten.silu_backward(grad, x)
        assert torch.equal(*gradients)
    for columns in (slice(None), slice(0, 21, 2)):
        place = x.clone()[:, columns]
        assert aten.gelu_(place) is place
        assert torch.equal(place, F.gelu(x)[:, columns])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        aten.silu.out(x, out=torch.empty(33, 21, dtype=dtype))
    with pytest.raises(RuntimeError, match="overlap|single memory location"):
        aten.silu.out(x[1:], out=x[:-1])
    with pytest.raises(RuntimeError, match="dtype"):
        aten.silu.out(x, out=x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout(dtype: torch.dtype) -> None:
    x = torch.ones(1000, 1001, device="npu", dtype=dtype, requires_grad=True)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(F.dropout(x, 0.3))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    kept = draws[0] != 0
    assert abs(kept.float().mean().item() - 0.7) < 0.002
    assert draws[0].unique().cpu().tolist() == [0.0, torch.tensor(1 / 0.7, dtype=dtype).item()]
    # Neighbours, and the same place in another draw, are independent: they agree as often as chance has it.
    for other in (kept.roll(1, 0), kept.roll(1, 1), draws[2] != 0):
        assert abs((kept == other).float().mean().item() - (0.7**2 + 0.3**2)) < 0.003
    gradient = torch.full_like(x, 2.0)
    assert torch.equal(torch.autograd.grad(draws[0], x, gradient)[0], 2 * draws[0])


def test_dropout_does_not_depend_on_the_threads() -> None:
    x, threads, draws = torch.ones(333_333, device="npu"), torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        torch.manual_seed(0)
        draws.append(F.dropout(x, 0.5))
    torch.set_num_threads(threads)
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("dtype", [*_DTYPES, torch.float64])
def test_embedding_copies_rows(dtype: torch.dtype) -> None:
    table = _normal(50, 33).to(dtype)
    for indices in (torch.arange(40).view(2, 4, 5) % 7, torch.tensor(49), torch.arange(9999, dtype=torch.int32) % 50):
        for weight in (table, table[:, ::2], table.t().contiguous().t()):
            assert torch.equal(F.embedding(indices.npu(), weight.npu()).cpu(), F.embedding(indices, weight))
    for outside in (50, -1):
        with pytest.raises(RuntimeError, match="index out of range in self.*\n.*507015"):
            F.embedding(torch.tensor([0, outside]).npu(), table.npu())


def test_cross_entropy() -> None:
    target = torch.arange(64) % 1000
    _check(lambda x: F.cross_entropy(x, target.to(x.device)), [_normal(64, 1000) * 3], torch.tensor(1.0))


@pytest.mark.parametrize(
    ("function", "shape", "kernel"),
    [
        (lambda x: F.softmax(x, -1), (4, 64), "aten"),
        (lambda x: F.softmax(x.double(), -1), (64, 64), "aten"),
        (lambda x: F.layer_norm(x, (64,)), (64, 64), "own"),
        (lambda x: F.rms_norm(x, (64,)), (64, 64), "own"),
        (lambda x: F.softmax(x, -1), (64, 64), "own"),
        (lambda x: F.softmax(x, 0), (64, 64), "aten"),
        (lambda x: F.dropout(x, 0.5), (2, 2), "own"),
        (F.gelu, (64, 64), "own"),
        (F.gelu, (4, 64), "own"),
        (torch.ops.npu.npu_gelu, (4, 64), "own"),
        (torch.ops.npu.npu_swiglu, (4, 64), "own"),
        (lambda x: torch.ops.npu.npu_rms_norm(x, x[0]), (4, 64), "own"),
        (lambda x: torch.ops.npu.npu_rotary_mul(x, x[:1], x[:1]), (4, 1, 1, 64), "own"),
        (lambda x: F.silu(x.double()), (64, 64), "aten"),
    ],
)
def test_which_kernel_serves_a_call(function: _Function, shape: tuple[int, ...], kernel: str) -> None:
    x = _normal(*shape).npu()
    _C._kernel_choice()
    function(x)
    assert _C._kernel_choice() == kernel
    assert _C._kernel_set() in ("baseline", "avx2", "avx512")


@pytest.mark.skipif(torch.get_num_threads() < 2, reason="one thread is all there is")
def test_kernels_run_on_several_threads() -> None:
    x = torch.ones(2048, 2048, device="npu")

    def processor_time() -> tuple[float, float]:
        """Seconds of the calling thread and of all others in 20 calls."""
        F.softmax(x, -1)
        of_all, of_this = time.process_time(), time.thread_time()
        for _ in range(20):
            F.softmax(x, -1)
        of_all, of_this = time.process_time() - of_all, time.thread_time() - of_this
        return of_this, of_all - of_this

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone, _ = processor_time()
    torch.set_num_threads(2)
    of_this, of_others = processor_time()
    torch.set_num_threads(threads)
    # Against the work, not the caller's own time: on a busy machine the caller spins until the others had their turn.
    assert of_others > 0.2 * alone, f"alone {alone:.3f} s; on 2 threads {of_this:.3f} s and {of_others:.3f} s"


def test_results_do_not_depend_on_the_threads() -> None:
    x, weight = (_normal(64, 1000) * 3).npu(), _normal(1000).npu()
    images = _normal(16, 32, 16, 16).npu()
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaf, scale = x.clone().requires_grad_(), weight.clone().requires_grad_()
        output = F.softmax(F.gelu(F.layer_norm(leaf, (1000,), scale, scale)), -1)
        gradients = torch.autograd.grad(output.square().sum(), [leaf, scale])
        results.append([output, *gradients, F.batch_norm(images, None, None, training=True)])
    torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_instruction_set(capability: str) -> None:
    run_again(__file__, capability, "not every_instruction")
