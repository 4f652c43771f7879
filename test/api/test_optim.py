"""torch_npu.optim: PyTorch's optimizers by another name, and those PyTorch does not have, against their formulas."""

import math

import pytest
import torch
import torch_npu.optim as optim
from torch_npu.optim.npu_fused_sgd import NpuFusedSGD


def _weights() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, device="npu")) for shape in ((4, 3), (5,))]


def _gradients(step: int) -> list[torch.Tensor]:
    torch.manual_seed(100 + step)
    return [torch.randn(shape).npu() for shape in ((4, 3), (5,))]


def _run(optimizer_type, steps: int = 4, **options) -> list[torch.Tensor]:
    weights = _weights()
    optimizer = optimizer_type(weights, **options)
    for step in range(steps):
        for weight, gradient in zip(weights, _gradients(step), strict=True):
            weight.grad = gradient
        optimizer.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize(
    ("ours", "reference", "options"),
    [
        (optim.NpuFusedSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (optim.NpuFusedAdadelta, torch.optim.Adadelta, {"lr": 0.5}),
        (optim.NpuFusedAdam, torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
        (optim.NpuFusedAdamW, torch.optim.AdamW, {"lr": 0.01}),
        (optim.NpuFusedRMSprop, torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    ],
)
def test_those_of_pytorch_are_pytorchs(ours, reference, options) -> None:
    assert issubclass(ours, optim.NpuFusedOptimizerBase) and ours.is_npu_fused_optimizer
    for a, b in zip(_run(ours, **options), _run(reference, **options), strict=True):
        torch.testing.assert_close(a, b)


def test_lamb_takes_steps_of_the_weights_norm() -> None:
    before, after = _weights()[1].detach(), _run(optim.NpuFusedLamb, steps=1, lr=0.1, eps=0.0)[1]
    torch.testing.assert_close((after - before).norm(), 0.1 * before.norm())
    adam = _run(optim.NpuFusedLamb, steps=1, lr=0.1, eps=0.0, adam=True)[1]
    torch.testing.assert_close((adam - before).abs(), torch.full_like(before, 0.1 * 0.1 / math.sqrt(0.001)))


def test_lamb_with_a_common_norm_does_not_see_the_scale_of_large_gradients() -> None:
    results = []
    for factor in (10.0, 100.0):
        weights = _weights()
        for weight, gradient in zip(weights, _gradients(0), strict=True):
            weight.grad = gradient * factor
        optim.NpuFusedLamb(weights, use_global_grad_norm=True).step()
        results.append(weights[0].detach())
    torch.testing.assert_close(*results)


def test_adamp_without_weight_decay_keeps_the_norm_of_scale_invariant_weights() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(1, 64, device="npu"))
    gradient = torch.randn(1, 64, device="npu")
    unit = weight.detach() / weight.detach().norm()
    weight.grad = gradient - unit * (unit * gradient).sum()  # at a right angle, as of a layer before a normalisation
    before = weight.detach().clone()
    optim.NpuFusedAdamP([weight], lr=1e-3, nesterov=True).step()
    assert abs((weight - before).flatten() @ unit.flatten()) < 1e-6
    other = _run(optim.NpuFusedAdamP, lr=0.01)[1]  # vectors are not projected: Adam's step
    torch.testing.assert_close(other, _run(torch.optim.Adam, lr=0.01)[1])


def test_rmsprop_of_tensorflow() -> None:
    gradient, weight = _gradients(0)[1], _weights()[1].detach()
    root = (0.9 + 0.1 * gradient.square() + 1e-10).sqrt()
    torch.testing.assert_close(_run(optim.NpuFusedRMSpropTF, steps=1, lr=0.1)[1], weight - 0.1 * gradient / root)
    options = {"lr": 0.1, "momentum": 0.9}
    inside = _run(optim.NpuFusedRMSpropTF, **options)
    outside = _run(optim.NpuFusedRMSpropTF, **options, lr_in_momentum=False)
    torch.testing.assert_close(inside, outside)  # the same while the rate stays
    decayed = _run(optim.NpuFusedRMSpropTF, steps=1, lr=0.1, weight_decay=0.5, decoupled_decay=True, centered=True)[1]
    root = (0.9 + 0.1 * gradient.square() - (0.1 * gradient).square() + 1e-10).sqrt()
    torch.testing.assert_close(decayed, weight * 0.95 - 0.1 * gradient / root)


def test_bert_adam_warms_up_and_clips() -> None:
    weight, gradient = _weights()[1].detach(), _gradients(0)[1]
    clipped = gradient * min(1.0, 1.0 / (gradient.norm().item() + 1e-6))
    step = 0.1 * clipped / ((0.001 * clipped.square()).sqrt() + 1e-6)
    one = _run(optim.NpuFusedBertAdam, steps=1, lr=0.01, weight_decay=0.0)[1]
    torch.testing.assert_close(one, weight - 0.01 * step)
    first = _run(optim.NpuFusedBertAdam, steps=1, lr=0.01, warmup=0.5, t_total=10, weight_decay=0.0)[1]
    assert torch.equal(first, weight)  # the rate starts at 0
    factors = [optim._warmup_factor("warmup_linear", p, 0.5) for p in (0.25, 0.5, 0.75, 1.0, 1.5)]
    assert factors == [0.5, 1.0, 0.5, 0.0, 0.0]
    assert optim._warmup_factor("warmup_constant", 0.9, 0.5) == 1.0
    assert optim._warmup_factor("warmup_cosine", 1.0, 0.5) == 0.0


def test_clipping_sums_over_groups_and_a_closure_is_called() -> None:
    weights = _weights()
    optimizer = optim.NpuFusedLamb([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.5}])
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    assert optimizer.clip_grad_norm_fused_(1.0).item() == pytest.approx(math.sqrt(17))
    assert math.sqrt(sum(w.grad.square().sum().item() for w in weights)) == pytest.approx(1.0, rel=1e-4)
    assert optimizer.step(lambda: 42) == 42
    other = optim.NpuFusedLamb([{"params": weights[:1]}, {"params": weights[1:]}])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[1]["lr"] == 0.5


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="NpuFusedLamb: lr must be at least 0"):
        optim.NpuFusedLamb(_weights(), lr=-1.0)
    with pytest.raises(ValueError, match="beta1 must be at least 0 and below 1"):
        optim.NpuFusedAdamP(_weights(), betas=(1.5, 0.9))
    with pytest.raises(ValueError, match="Invalid schedule"):
        optim.NpuFusedBertAdam(_weights(), lr=0.1, schedule="steep")
    with pytest.raises(ValueError, match="warmup must be"):
        optim.NpuFusedBertAdam(_weights(), lr=0.1, warmup=2)
    with pytest.raises(TypeError, match="lr"):
        NpuFusedSGD(_weights())
    weight = _weights()[0]
    weight.grad = torch.ones(4, 3).to_sparse().npu()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optim.NpuFusedLamb([weight]).step()
