"""AutoMixedPrecision against plain PyTorch's autocast and GradScaler, level by level."""

import copy

import pytest
import torch
import torch.nn.functional as F
from cann.recipes.train import AutoMixedPrecision
from small import WIDTH, classifier, points
from torch import nn


def batches():
    x, y = points().tensors
    return zip(x.npu().split(16), y.npu().split(16), strict=True)


def train(amp: AutoMixedPrecision, model: nn.Module, lr: float = 0.1, **options) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, **options)
    model = amp.prepare(model, optimizer)
    losses = []
    for x, y in batches():
        with amp.autocast():
            loss = F.cross_entropy(model(x), y)
        amp.backward(loss)
        amp.step(optimizer)
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train_plainly(model: nn.Module, dtype=torch.float32, clip: float | None = None) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("npu", enabled=dtype == torch.float16)
    losses = []
    for x, y in batches():
        with torch.autocast("npu", dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_o1_is_plain_autocast_to_the_bit(dtype: torch.dtype, clip: float | None) -> None:
    ours, plain = classifier().npu(), classifier().npu()
    assert train(AutoMixedPrecision(dtype=dtype, clip_norm=clip), ours) == train_plainly(plain, dtype, clip)
    assert same_weights(ours, plain)


@pytest.mark.parametrize("arguments", [{"opt_level": "O0"}, {"enabled": False, "opt_level": "O2"}])
def test_o0_is_float32_to_the_bit(arguments) -> None:
    ours, plain = classifier().npu(), classifier().npu()
    assert train(AutoMixedPrecision(**arguments), ours) == train_plainly(plain)
    assert same_weights(ours, plain)


def test_o2_keeps_float32_masters_and_follows_float32() -> None:
    model, plain = classifier().npu(), classifier().npu()
    parameters = list(model.parameters())
    amp = AutoMixedPrecision(opt_level="O2")
    losses = train(amp, model)
    assert all(p is q for p, q in zip(model.parameters(), parameters, strict=True))
    kinds = {name: p.dtype for name, p in model.named_parameters()}
    assert kinds["1.norm.weight"] == torch.float32 and kinds["1.up.weight"] == torch.float16
    for parameter, master in amp.masters.items():
        assert master.dtype == torch.float32 and torch.equal(master.half(), parameter) and parameter.grad is None
    # float16 has 11 bits: values agree to about 1e-3, sums of them a little less.
    torch.testing.assert_close(losses, train_plainly(plain), rtol=5e-3, atol=5e-3)
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(amp.masters.get(p, p), q, rtol=1e-2, atol=2e-3, msg=name)


def test_o2_masters_hold_updates_that_16_bits_would_lose() -> None:
    model = nn.Linear(WIDTH, WIDTH, bias=False).npu()
    model.weight.data.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    amp = AutoMixedPrecision(opt_level="O2", init_scale=1.0)
    amp.prepare(model, optimizer)
    for _ in range(4):
        with amp.autocast():
            loss = model(torch.ones(1, WIDTH, device="npu")).sum()
        amp.backward(loss)
        amp.step(optimizer)
    (master,) = amp.masters.values()
    assert torch.equal(model.weight, torch.ones_like(model.weight))
    torch.testing.assert_close(master, torch.full_like(master, 1 - 4e-6), rtol=0, atol=2e-7)


def test_o3_is_16_bit_throughout() -> None:
    model = classifier().npu()
    losses = train(AutoMixedPrecision(opt_level="O3", dtype="bfloat16"), model, lr=0.02)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(torch.randn(2, WIDTH, device="npu")).dtype == torch.float32
    assert all(loss == loss for loss in losses)


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_layers_kept_in_float32(level: str) -> None:
    model = classifier().npu()
    seen = {}
    for name in ("1.up", "2.up", "5"):
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name: seen.__setitem__(name, (args[0].dtype, module.weight.dtype))
        )
    train(AutoMixedPrecision(opt_level=level, keep_fp32=["1.*", "5"], init_scale=1024.0), model, lr=0.01)
    assert seen["1.up"][1] == seen["5"][1] == torch.float32
    assert seen["2.up"][1] == (torch.float32 if level == "O1" else torch.float16)


def test_kept_modules_survive_copies_and_errors() -> None:
    model = classifier(1).npu()
    AutoMixedPrecision(keep_fp32="1").prepare(model)
    with torch.autocast("npu", torch.float16):
        with pytest.raises(RuntimeError):
            copy.deepcopy(model)(torch.ones(2, WIDTH + 1, device="npu"))
        assert torch.is_autocast_enabled("npu")
        assert copy.deepcopy(model)(torch.ones(2, WIDTH, device="npu")).dtype == torch.float16


def test_overflow_skips_the_step_and_lowers_the_scale() -> None:
    model = nn.Linear(WIDTH, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp = AutoMixedPrecision(init_scale=2.0**16, growth_interval=2)
    amp.prepare(model, optimizer)
    before = copy.deepcopy(model)
    amp.backward(model(torch.full((4, WIDTH), 1e35, device="npu")).sum())
    report = amp.step(optimizer)
    assert report.skipped and report.loss_scale == 2.0**16 and amp.loss_scale == 2.0**15
    assert same_weights(model, before)
    for _ in range(2):
        optimizer.zero_grad()
        amp.backward(model(torch.ones(4, WIDTH, device="npu")).sum())
        assert not amp.step(optimizer).skipped
    assert amp.loss_scale == 2.0**16, "growth_interval steps went well"
    again = AutoMixedPrecision()
    again.load_state_dict(amp.state_dict())
    assert again.loss_scale == 2.0**16 and len(again.monitor.reports) == 3


def test_probe_finds_what_float16_cannot_hold_and_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(), nn.Linear(WIDTH, 2)).npu()
    with torch.no_grad():
        model[3].weight.fill_(5e3)
    x = torch.randn(8, WIDTH, device="npu")
    before, rng = copy.deepcopy(model.state_dict()), torch.npu.get_rng_state()
    amp = AutoMixedPrecision()
    verdicts = amp.probe(model, lambda: model(x).square().mean())
    assert verdicts["0"] == "safe" and "near the largest torch.float16" in verdicts["3"]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(rng, torch.npu.get_rng_state()) and model[0].weight.grad is None
    amp.prepare(model)
    with amp.autocast():
        assert model(x).dtype == torch.float32
    assert set(AutoMixedPrecision(dtype="bfloat16").probe(model, lambda: model(x)).values()) == {"safe"}


def test_probe_finds_vanishing_gradients() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)).npu()
    verdicts = AutoMixedPrecision(init_scale=1.0).probe(
        model, lambda: model(torch.ones(4, WIDTH, device="npu")).sum() * 1e-12
    )
    assert "vanish in torch.float16 at loss scale 1" in verdicts["0"]


def test_advice() -> None:
    from torch_cann.recipes.train.training_monitor import StepReport, TrainingMonitor

    def advice(reports, losses=(), clip=None) -> str:
        monitor = TrainingMonitor(clip_norm=clip)
        for report in reports:
            monitor.add(report)
        for loss in losses:
            monitor.add_loss(loss)
        return "; ".join(monitor.advice())

    calm = [StepReport(False, 1024.0, 1.0, 1e-3)] * 30
    assert advice(calm, [1.0 - i / 100 for i in range(60)], clip=2.0) == ""
    overflows = [StepReport(True, 1024.0, float("inf"))] * 8
    assert "8 of 38 steps overflowed: start with a lower init_scale" in advice(calm + overflows)
    assert "overflow by themselves" in advice([*calm, StepReport(True, 0.5, float("inf"))])
    assert "usually 1" in advice([*calm, StepReport(False, 1024.0, 50.0)])
    assert "30 of 30 steps were clipped to 0.5" in advice(calm, clip=0.5)
    assert "a step changes the parameters by 10.0%" in advice([StepReport(False, 1.0, 1.0, 0.1)] * 4)
    assert "too low to learn" in advice([StepReport(False, 1.0, 1.0, 1e-9)] * 4)
    assert "the loss rose from" in advice(calm, [1.0 + i / 10 for i in range(40)])
    assert "the loss is nan" in advice(calm, [float("nan")])


def test_update_ratio_is_measured() -> None:
    model = nn.Linear(WIDTH, WIDTH, bias=False).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    amp = AutoMixedPrecision(enabled=False, monitor_interval=1)
    amp.prepare(model, optimizer)
    amp.backward(model.weight.square().sum() / 20)  # the gradient is a tenth of the weight
    report = amp.step(optimizer)
    assert report.update_ratio == pytest.approx(0.05, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opt_level": "O4"}, "opt_level must be one of 'O0', 'O1', 'O2', 'O3', but is 'O4'"),
        ({"dtype": "float64"}, "dtype must be one of float16, bfloat16"),
        ({"growth_factor": 1.0}, "growth_factor must be above 1"),
        ({"backoff_factor": 1.0}, "backoff_factor must be below 1"),
        ({"init_scale": "big"}, "init_scale must be a number"),
        ({"clip_norm": 0}, "clip_norm must be above 0"),
    ],
)
def test_refusals(arguments, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AutoMixedPrecision(**arguments)


def test_misuse() -> None:
    model = classifier().npu()
    with pytest.raises(ValueError, match=r"'head\.\*' matches no module; there are 0, 1, 1.norm"):
        AutoMixedPrecision(keep_fp32="head.*").prepare(model)
    with pytest.raises(ValueError, match="O2 keeps float32 masters in the optimizer"):
        AutoMixedPrecision(opt_level="O2").prepare(model)
    amp = AutoMixedPrecision()
    amp.prepare(model)
    with pytest.raises(RuntimeError, match="prepare\\(\\) is called once"):
        amp.prepare(model)
