"""Kernels that walk whole lists of tensors: foreach arithmetic, norms, unscaling of gradients, fused optimizers.

Values are compared with the CPU device's (to the bit, where its arithmetic can be repeated) or with float64. Each
instruction set that this processor has is tried, in a process of its own, since the choice is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from instruction_sets import CAPABILITIES, run_again

_SHAPES = ((4, 64), (64,), (7,), (130, 300), (1,), (3, 0), (2, 8, 5, 5), ())
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _tensors(seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in _SHAPES]


_SCALARS = [0.1 * i + 0.3 for i in range(len(_SHAPES))]
_Lists = tuple[list[torch.Tensor], ...]

# Name of the operator, and how it is called on lists a, b, c.
_CALLS: dict[str, tuple[str, Callable[[Any, _Lists], Any]]] = {
    "add list": ("_foreach_add", lambda f, t: f(t[0], t[1], alpha=0.37)),
    "sub list": ("_foreach_sub", lambda f, t: f(t[0], t[1], alpha=0.37)),
    "add scalar": ("_foreach_add", lambda f, t: f(t[0], 0.37)),
    "sub scalar": ("_foreach_sub", lambda f, t: f(t[0], 0.37)),
    "add scalars": ("_foreach_add", lambda f, t: f(t[0], _SCALARS)),
    "mul list": ("_foreach_mul", lambda f, t: f(t[0], t[1])),
    "mul scalar": ("_foreach_mul", lambda f, t: f(t[0], 0.37)),
    "mul scalars": ("_foreach_mul", lambda f, t: f(t[0], _SCALARS)),
    "mul tensor": ("_foreach_mul", lambda f, t: f(t[0], t[2][4].reshape(()))),
    "mul one": ("_foreach_mul", lambda f, t: f(t[0], 1.0)),
    "div list": ("_foreach_div", lambda f, t: f(t[0], t[1])),
    "div scalar": ("_foreach_div", lambda f, t: f(t[0], 0.37)),
    "div scalars": ("_foreach_div", lambda f, t: f(t[0], _SCALARS)),
    "lerp": ("_foreach_lerp", lambda f, t: f(t[0], t[1], 0.1)),
    "lerp far": ("_foreach_lerp", lambda f, t: f(t[0], t[1], 0.9)),
    "addcmul": ("_foreach_addcmul", lambda f, t: f(t[0], t[1], t[2], value=0.37)),
    "addcdiv": ("_foreach_addcdiv", lambda f, t: f(t[0], t[1], t[2], value=-0.37)),
    "addcdiv scalars": ("_foreach_addcdiv", lambda f, t: f(t[0], t[1], t[2], _SCALARS)),
    "maximum": ("_foreach_maximum", lambda f, t: f(t[0], t[1])),
    "minimum": ("_foreach_minimum", lambda f, t: f(t[0], t[1])),
    "reciprocal": ("_foreach_reciprocal", lambda f, t: f(t[0])),
    "neg": ("_foreach_neg", lambda f, t: f(t[0])),
    "abs": ("_foreach_abs", lambda f, t: f(t[0])),
}


def _call(name: str, inplace: bool, lists: _Lists) -> list[torch.Tensor]:
    operator, call = _CALLS[name]
    if not inplace:
        return list(call(getattr(torch, operator), lists))
    call(getattr(torch, operator + "_"), lists)
    return lists[0]


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", _CALLS)
def test_foreach_equals_the_cpu_to_the_bit(name: str, inplace: bool, dtype: torch.dtype) -> None:
    host = tuple(_tensors(seed, dtype) for seed in range(3))
    npu = tuple([tensor.npu() for tensor in tensors] for tensors in host)
    versions = [tensor._version for tensor in npu[0]]
    results, expected = _call(name, inplace, npu), _call(name, inplace, host)
    for result, want in zip(results, expected, strict=True):
        assert result.device.type == "npu"
        torch.testing.assert_close(result.cpu(), want, rtol=0, atol=0, equal_nan=True)
    assert [tensor._version for tensor in npu[0]] == [version + inplace for version in versions]


@pytest.mark.parametrize("dtype", _DTYPES)
def test_foreach_sqrt_is_rounded_correctly(dtype: torch.dtype) -> None:
    tensors = [tensor.abs().npu() for tensor in _tensors(0, dtype)]
    for result, tensor in zip(torch._foreach_sqrt(tensors), tensors, strict=True):
        assert torch.equal(result.cpu(), tensor.cpu().double().sqrt().to(dtype))


def test_lists_that_are_not_regular_take_the_general_path() -> None:
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    cases: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = [
        ([a.t()], [b.t()]),  # dense, not contiguous
        ([a[:, ::2]], [b[:, ::2]]),  # gaps
        ([a], [b.t().contiguous().t()]),  # other strides
        ([a], [b[0]]),  # broadcast
        ([a.double(), a], [b.double(), b]),  # types mixed over the list
        ([a], [b.double()]),  # types mixed within a pair
        ([torch.randn(4, 6, dtype=torch.complex64).imag.conj()], [b]),
        ([torch.randn(4, dtype=torch.complex64).conj().imag], [a[:, 0]]),  # a lazily negated view
    ]
    for first, second in cases:
        results = torch._foreach_add([t.npu() for t in first], [t.npu() for t in second], alpha=2)
        for result, want in zip(results, torch._foreach_add(first, second, alpha=2), strict=True):
            torch.testing.assert_close(result.cpu(), want, rtol=0, atol=0)


def test_errors_are_the_cpus() -> None:
    tensors = [torch.ones(2, device="npu")]
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors"):
        torch._foreach_add_(tensors, tensors * 2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._foreach_add_(tensors, [torch.ones(2)])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add_([], 1.0)
    overlapping = torch.ones(9, device="npu")
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch._foreach_add_([overlapping[:-1]], [overlapping[1:]])


def test_a_tensor_twice_in_a_list_is_written_twice() -> None:
    big = torch.ones(1 << 17, device="npu")
    torch._foreach_add_([big, big, big], 1.0)
    assert torch.equal(big.cpu(), torch.full((1 << 17,), 4.0))


@pytest.mark.parametrize("dtype", _DTYPES)
def test_foreach_norm_is_at_least_as_accurate_as_the_cpus(dtype: torch.dtype) -> None:
    tensors = [*_tensors(0, dtype), torch.randn(300_001).to(dtype)]
    ours, cpus = torch._foreach_norm([tensor.npu() for tensor in tensors]), torch._foreach_norm(tensors)
    for norm, cpu, tensor in zip(ours, cpus, tensors, strict=True):
        exact = tensor.double().norm()
        assert norm.dtype == dtype
        assert norm.shape == ()
        tolerance = max((cpu.double() - exact).abs().item(), torch.finfo(dtype).eps * exact.item())
        assert (norm.cpu().double() - exact).abs().item() <= tolerance


def test_clip_grad_norm_does_not_depend_on_the_threads() -> None:
    gradients = [torch.randn(100_003, device="npu"), torch.randn(5, device="npu")]
    threads = torch.get_num_threads()
    norms = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        norms.append(torch._foreach_norm(gradients)[0].item())
    torch.set_num_threads(threads)
    assert len(set(norms)) == 1


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_optimizers_do_not_depend_on_the_threads(optimizer: type[torch.optim.Optimizer]) -> None:
    threads, results = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.randn(n, generator=generator).npu().requires_grad_() for n in (100_003, 5, 40_000)]
        for parameter in parameters:
            parameter.grad = parameter.detach().sin()
        chosen = optimizer(parameters, lr=0.1, fused=True)
        for _ in range(2):
            chosen.step()
        results.append(torch.cat(parameters).detach().cpu())
    torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_unscaling_finds_what_is_not_finite(bad: float | None, dtype: torch.dtype) -> None:
    host = _tensors(0, dtype)
    if bad is not None:
        host[3][129, 299] = bad  # in the last, partial vector
    npu = [tensor.npu() for tensor in host]
    found = {"cpu": torch.zeros(1), "npu": torch.zeros(1, device="npu")}
    for device, tensors in (("cpu", host), ("npu", npu)):
        inverse = torch.full((1,), 0.37, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found[device], inverse)
    assert found["npu"].item() == (0.0 if bad is None else 1.0)
    for ours, want in zip(npu, host, strict=True):
        torch.testing.assert_close(ours.cpu(), want, rtol=0, atol=0, equal_nan=True)


_OPTIMIZERS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    (torch.optim.Adam, {"weight_decay": 0.1}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
]


def _trained(device: str, kind: type[torch.optim.Optimizer], **options: Any) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in ((64, 600), (7,))]
    optimizer = kind(parameters, **options)
    for _ in range(4):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(device)
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


@pytest.mark.parametrize(("kind", "options"), _OPTIMIZERS)
def test_fused_optimizers_give_the_numbers_of_the_default_ones(
    kind: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    fused, foreach = (_trained("npu", kind, **options, **way) for way in ({"fused": True}, {"foreach": True}))
    for ours, want in zip(fused, foreach, strict=True):
        assert torch.equal(ours, want)
    for ours, want in zip(fused, _trained("cpu", kind, **options), strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_default_is_the_fused_kernel_and_leaves_no_trace(kind: type[torch.optim.Optimizer]) -> None:
    parameter = torch.ones(5, device="npu", requires_grad=True)
    parameter.grad = torch.ones(5, device="npu")
    for options, called in (({}, True), ({"foreach": True}, False), ({"fused": False}, False)):
        optimizer = kind([parameter], **options)
        with torch.profiler.profile() as profile:
            optimizer.step()
        assert any(event.key.startswith("aten::_fused_adam") for event in profile.key_averages()) == called
        assert optimizer.param_groups[0]["fused"] == options.get("fused")
    with torch.no_grad():
        half = torch.ones(5, device="npu", dtype=torch.bfloat16, requires_grad=True)
        half.grad = torch.ones_like(half)
        optimizer = kind([half])
        optimizer.step()  # foreach: another rounding of 16-bit state
    assert optimizer.state[half]["step"].device.type == "cpu"


def test_a_default_optimizer_goes_on_from_a_foreach_checkpoint() -> None:
    results = []
    for second in ({}, {"foreach": True}):
        parameter = torch.ones(5, device="npu", requires_grad=True)
        parameter.grad = torch.arange(5.0, device="npu")
        first = torch.optim.AdamW([parameter], foreach=True)
        first.step()
        resumed = torch.optim.AdamW([parameter], **second)
        state = first.state_dict()
        state["param_groups"][0]["foreach"] = second.get("foreach")
        resumed.load_state_dict(state)
        resumed.step()
        assert resumed.state[parameter]["step"].item() == 2
        results.append(parameter.detach().cpu())
    assert torch.equal(*results)


def _channels_last(weight: torch.Tensor) -> torch.Tensor:
    return weight.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.AdamW, {"fused": True, "lr": torch.tensor(0.05)}),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
        (torch.optim.Adagrad, {"fused": True}),
    ],
)
@pytest.mark.parametrize(
    ("of_parameter", "of_gradient"),
    [(_channels_last, torch.Tensor.clone), (torch.Tensor.clone, _channels_last), (lambda w: w[::2], lambda w: w[::2])],
    ids=["parameter", "gradient", "with gaps"],
)
def test_fused_optimizers_pair_elements_whatever_their_layout(
    kind: type[torch.optim.Optimizer], options: dict[str, Any], of_parameter: Any, of_gradient: Any
) -> None:
    weight, gradient = torch.arange(8 * 4 * 3 * 3.0).sin().view(8, 4, 3, 3), torch.arange(288.0).cos().view(8, 4, 3, 3)
    results = []
    for device in ("cpu", "npu"):
        parameter = of_parameter(weight.clone().to(device)).detach().requires_grad_()
        # The CPU's fused optimizers have no such care.
        settings = options if device == "npu" else {k: v for k, v in options.items() if k != "fused"}
        optimizer = kind([parameter], **settings)
        for scale in (1.0, -0.5):
            parameter.grad = of_gradient(gradient.to(device)) * scale
            optimizer.step()
        assert parameter._version >= 2
        results.append(parameter.detach().cpu())
    torch.testing.assert_close(*reversed(results), rtol=1e-6, atol=1e-6)


def test_an_expanded_gradient_is_read_and_an_expanded_parameter_refused() -> None:
    parameter = torch.zeros(600, device="npu", requires_grad=True)
    parameter.grad = torch.full((1,), 2.0, device="npu").expand(600)
    torch.optim.AdamW([parameter], lr=0.5).step()
    torch.testing.assert_close(parameter.detach().cpu(), torch.full((600,), -0.5))
    shared = torch.zeros(1, device="npu").expand(600).detach().requires_grad_()
    shared.grad = torch.ones(600, device="npu")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.optim.AdamW([shared]).step()


def test_a_state_of_another_shape_is_refused() -> None:
    parameter = torch.ones(64, device="npu", requires_grad=True)
    optimizer = torch.optim.AdamW([parameter])
    state = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": optimizer.state_dict()["param_groups"]})
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(RuntimeError, match=r"parameter of shape \[64\], but a gradient or a state of shape \[2\]"):
        optimizer.step()
    assert torch.equal(parameter.detach().cpu(), torch.ones(64))


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_is_skipped_when_the_scaler_found_an_overflow(kind: type[torch.optim.Optimizer]) -> None:
    parameter = torch.ones(5, device="npu", requires_grad=True)
    optimizer = kind([parameter], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("npu", init_scale=4.0)
    for factor, moved in ((float("inf"), False), (1.0, True)):
        before = parameter.detach().clone()
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert bool((parameter != before).any()) == moved


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_instruction_set(capability: str) -> None:
    run_again(__file__, capability, "not to_the_bit and not every_instruction")
