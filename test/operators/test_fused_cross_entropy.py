"""Cross entropy by a kernel of its own: values and gradients of every option, and what is left to the composition.

The measure is float64: a result may be off by twice what the CPU device's result of the same type is off, plus a few
units in the last place of the largest value.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from instruction_sets import CAPABILITIES, run_again


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _targets(rows: int, classes: int) -> torch.Tensor:
    return torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(9))


def _run(logits: torch.Tensor, target: torch.Tensor, options: dict[str, Any]) -> list[torch.Tensor]:
    """Loss and gradient of the logits, on the CPU; a loss per row is weighted by its position."""
    x = logits.detach().clone().requires_grad_()
    loss = F.cross_entropy(x, target, **options)
    factors = torch.linspace(-1, 1, loss.numel(), dtype=loss.dtype, device=loss.device).reshape(loss.shape)
    (grad,) = torch.autograd.grad(loss, x, factors if loss.dim() else None)
    return [loss.detach().cpu(), grad.cpu()]


def _check(logits: torch.Tensor, target: torch.Tensor, own: bool = True, **options: Any) -> None:
    weight = options.pop("weight", None)

    def run(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        given = dict(options) if weight is None else {**options, "weight": weight.to(device, dtype)}
        return _run(logits.to(device, dtype), target.to(device), given)

    exact, cpu = run("cpu", torch.float64), run("cpu", logits.dtype)
    npu, again = run("npu", logits.dtype), run("npu", logits.dtype)
    node = F.cross_entropy(logits.npu().requires_grad_(), target.npu()).grad_fn
    assert node is not None
    assert ("CrossEntropy" in node.name()) == own
    for ours, second, theirs, want in zip(npu, again, cpu, exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert torch.equal(ours, second)
        error, cpu_error = ((result.double() - want).abs().max() for result in (ours, theirs))
        slack = 4 * torch.finfo(ours.dtype).eps * want.abs().max().clamp(min=1e-30)
        assert error <= 2 * cpu_error + slack, f"error {error:.3g}, the CPU's {cpu_error:.3g}"


@pytest.mark.parametrize("shape", [(1, 5000), (2000, 3), (37, 129), (64, 1000), (300, 2048)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions_and_shapes(shape: tuple[int, int], reduction: str) -> None:
    _check(_normal(*shape) * 3, _targets(*shape), reduction=reduction)


@pytest.mark.parametrize(
    ("weighted", "smoothing", "reduction"), list(itertools.product([False, True], [0.0, 0.1, 1.0], ["mean", "none"]))
)
def test_weights_smoothing_and_ignored_rows(weighted: bool, smoothing: float, reduction: str) -> None:
    target = _targets(50, 333)
    target[::7] = 5
    options: dict[str, Any] = {"weight": _normal(333, seed=2).abs()} if weighted else {}
    _check(_normal(50, 333), target, ignore_index=5, label_smoothing=smoothing, reduction=reduction, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_logits(dtype: torch.dtype) -> None:
    _check((_normal(40, 515) * 3).to(dtype), _targets(40, 515))


def test_far_from_zero() -> None:
    _check(_normal(40, 300) + 1000, _targets(40, 300), reduction="none")


def test_autocast_reads_16_bit_logits_and_gives_float32() -> None:
    logits, target = _normal(40, 515).bfloat16(), _targets(40, 515)
    losses, grads = [], []
    for x in (logits.npu().requires_grad_(), logits.float().npu().requires_grad_()):
        with torch.autocast("npu", dtype=torch.bfloat16):
            losses.append(F.cross_entropy(x, target.npu()))
        grads.append(torch.autograd.grad(losses[-1], x)[0])
    assert losses[0].dtype == torch.float32
    assert torch.equal(losses[0], losses[1])
    assert grads[0].dtype == torch.bfloat16
    assert torch.equal(grads[0], grads[1].bfloat16())


def test_left_to_the_composition() -> None:
    target = _targets(60, 90)
    _check(_normal(60, 90)[:, :3], target % 3, own=False)
    images = _normal(2, 90, 60)
    _check(images, _targets(120, 90).view(2, 60), own=False)
    _check(_normal(60, 90), _normal(60, 90, seed=1).softmax(1), own=False)
    with pytest.raises(RuntimeError, match=r"(?s)out of bounds.*507015"):
        F.cross_entropy(_normal(60, 90).npu(), torch.full((60,), 90, device="npu"))
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(_normal(60, 90).npu(), target[:50].npu())


def test_what_is_not_finite() -> None:
    inf, nan = float("inf"), float("nan")
    x = _normal(6, 800)
    x[0, 3], x[1, 3], x[2, 3], x[3, :] = -inf, inf, nan, -inf
    target = torch.tensor([0, 0, 0, 0, 3, 3])
    x[4, 3] = -inf
    ours, theirs = (_run(x.to(device), target.to(device), {"reduction": "none"}) for device in ("npu", "cpu"))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    everything = torch.full((6,), -100)
    ours, theirs = (_run(_normal(6, 800).to(device), everything.to(device), {}) for device in ("npu", "cpu"))
    torch.testing.assert_close(ours[0], theirs[0], equal_nan=True)


def test_other_derivatives() -> None:
    x, target, direction = _normal(30, 200), _targets(30, 200), _normal(30, 200, seed=1)
    options: dict[str, Any] = {"ignore_index": 7, "label_smoothing": 0.1}
    target[::5] = 7

    def second(device: str, dtype: torch.dtype) -> torch.Tensor:
        leaf, weight = x.to(device, dtype).requires_grad_(), torch.linspace(0, 1, 200, device=device, dtype=dtype)
        loss = F.cross_entropy(leaf, target.to(device), weight=weight, **options).square()
        (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0].cpu().double()

    torch.testing.assert_close(second("npu", torch.float32), second("cpu", torch.float64), rtol=1e-4, atol=1e-9)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target.to(x.device), **options)

    forward = torch.func.jvp(loss, (x.npu(),), (direction.npu(),))[1]
    torch.testing.assert_close(forward.cpu(), torch.func.jvp(loss, (x,), (direction,))[1])
    rows = torch.func.vmap(lambda row, t: F.cross_entropy(row, t))(x.npu(), target.npu())
    torch.testing.assert_close(rows.cpu(), F.cross_entropy(x, target, reduction="none"))
    leaf = x.npu().requires_grad_()
    losses = F.cross_entropy(leaf, target.npu(), reduction="none")
    jacobian = torch.autograd.grad(losses, leaf, torch.eye(30).npu(), retain_graph=True, is_grads_batched=True)[0]
    for row in (0, 29):
        (want,) = torch.autograd.grad(losses[row], leaf, retain_graph=True)
        torch.testing.assert_close(jacobian[row], want)


def test_a_mode_sees_the_operators_it_is_made_of() -> None:
    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    names: list[str] = []
    with Names():
        F.cross_entropy(_normal(60, 90).npu(), _targets(60, 90).npu())
    assert "aten.nll_loss_forward.default" in names


def test_keeps_less_memory_than_the_composition() -> None:
    x = torch.zeros(512, 4096, device="npu", requires_grad=True)
    target = torch.zeros(512, dtype=torch.long, device="npu")
    size = x.numel() * 4
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    loss = F.cross_entropy(x, target)
    assert torch.npu.max_memory_allocated() - before < size / 8
    loss.backward()
    assert torch.npu.max_memory_allocated() - before < size * 1.25


def test_does_not_depend_on_the_threads() -> None:
    x, target, threads, results = _normal(700, 500).npu(), _targets(700, 500).npu(), torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(_run(x, target, {}))
    torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(map(torch.equal, results[0], result))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_instruction_set(capability: str) -> None:
    run_again(__file__, capability, "reductions or weights or 16_bit or finite or far")
