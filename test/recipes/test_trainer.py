"""AdvancedTrainer against a plain loop: the same numbers, by configuration, also after being killed."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader
from small import classifier, points
from torch import nn
from torch.utils.data import DataLoader

from torch_cann.recipes.train.schedules import Schedule


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def trained(max_steps=None, epochs=2, loader=None, make=None, log_interval=100, **options):
    """A trainer that has trained, with its result."""
    model = classifier(dropout=0.1)
    optimizer = (make or (lambda p: torch.optim.AdamW(p, lr=1e-2)))(model.parameters())
    torch.manual_seed(5)
    loader = OptimizedDataLoader(points(), 8, shuffle=True) if loader is None else loader
    trainer = AdvancedTrainer(model, optimizer, loader, console=False, **options)
    return trainer, trainer.train(epochs=epochs, max_steps=max_steps, log_interval=log_interval)


def plain(epochs: int = 2, accumulate: int = 1, amp: bool = False, clip: float | None = None, factor=lambda step: 1.0):
    model = classifier(dropout=0.1).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(5)
    loader, scaler = OptimizedDataLoader(points(), 8, shuffle=True), torch.amp.GradScaler("npu", enabled=amp)
    step = 0
    for _ in range(epochs):
        for batches in _batched(loader, accumulate):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * factor(step)
            for x, y in batches:
                with torch.autocast("npu", torch.float16, enabled=amp):
                    loss = F.cross_entropy(model(x).float(), y) / accumulate
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            step += 1
    return weights(model)


def _batched(loader, n: int):
    iterator = iter(loader)
    while batch := list(itertools.islice(iterator, n)):
        yield batch


def test_it_is_a_plain_loop_to_the_bit() -> None:
    trainer, result = trained()
    assert same(weights(trainer.model), plain())
    assert (result.step, result.epoch, result.interrupted) == (16, 2, False)


def test_with_precision_accumulation_clipping_and_schedule_too() -> None:
    options = {"amp_config": {"enabled": True}, "memory_config": {"accumulation_steps": 2, "checkpointing": 0.5}}
    trainer, result = trained(clip_norm=0.5, schedule="cosine", warmup_steps=2, **options)
    expected = plain(accumulate=2, amp=True, clip=0.5, factor=Schedule("cosine", 8, 2))
    assert result.step == 8
    for name, value in weights(trainer.model).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-7, msg=name)


def test_schedules() -> None:
    cosine = [Schedule("cosine", 10, 0.2, floor=0.1)(step) for step in range(11)]
    assert cosine[:3] == [0.5, 1.0, 1.0] and cosine[6] == pytest.approx(0.55) and cosine[10] == pytest.approx(0.1)
    assert [Schedule("linear", 4)(s) for s in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert [Schedule("inverse_sqrt", 99, 4)(s) for s in (0, 3, 4, 16)] == [0.25, 1.0, 1.0, 0.5]
    with pytest.raises(ValueError, match="schedule must be one of 'constant', 'linear', 'cosine', 'inverse_sqrt'"):
        trained(schedule="cosin")


def test_validation_metrics_and_hooks(tmp_path) -> None:
    seen: list[tuple[str, dict]] = []

    class Spy:
        def on_epoch_start(self, trainer, values):
            seen.append(("epoch_start", values))

        def on_validation_end(self, trainer, values):
            seen.append(("validation_end", values))

    validation = DataLoader(points(20, seed=9), 8)
    hooks = [Spy(), {"train_end": lambda trainer, values: seen.append(("train_end", values))}]
    trainer, result = trained(
        val_loader=validation, metrics_file=tmp_path / "log" / "metrics.jsonl", hooks=hooks, log_interval=4
    )
    assert [event for event, _ in seen] == ["epoch_start", "validation_end"] * 2 + ["train_end"]
    trainer.model.eval()
    x, y = (t.npu() for t in validation.dataset.tensors)
    assert result.val_loss == pytest.approx(F.cross_entropy(trainer.model(x), y).item(), rel=1e-5)
    records = [json.loads(line) for line in (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [4, 8, 8, 12, 16, 16]
    assert records[4]["loss"] == result.loss and records[5]["val_loss"] == result.val_loss
    assert {"lr", "gradient_norm", "loss_scale", "samples_per_second", "peak_memory_mib"} <= set(records[0])


def test_tensorboard_is_optional(tmp_path, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("tensorboard", "torch.utils.tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # import then fails
    with pytest.raises(ImportError, match="pip install tensorboard"):
        trained(tensorboard_dir=tmp_path)


def test_tensorboard_has_what_the_json_lines_have(tmp_path) -> None:
    """Also of a run that is gone on with: what was written after its checkpoint is hidden, not shown twice."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {"val_loader": DataLoader(points(20, seed=9), 8), "log_interval": 2, "checkpoint_dir": tmp_path / "c"}
    options |= {"tensorboard_dir": tmp_path / "t", "metrics_file": tmp_path / "metrics.jsonl"}
    trained(max_steps=10, checkpoint_interval=8, keep_checkpoints=3, **options)
    (tmp_path / "c" / "step-00000010").rename(tmp_path / "gone")
    trained(**options)

    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    events = reader.EventAccumulator(str(tmp_path / "t"))
    events.Reload()
    for name in ("loss", "lr", "gradient_norm", "val_loss"):
        written = [(record["step"], record[name]) for record in records if name in record]
        seen = [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(name)]
        assert written == seen, name
    assert [record["step"] for record in records if "loss" in record] == list(range(2, 17, 2))


def test_dictionary_batches_and_numbers() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier(1)

        def forward(self, x, labels):
            return {"loss": F.cross_entropy(self.net(x), labels)}

    def collate(samples):
        x, y = torch.utils.data.default_collate(samples)
        return {"x": x, "labels": y}

    model = WithLoss()
    loader = DataLoader(points(), 8, collate_fn=collate)
    first = AdvancedTrainer(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, console=False).train(5, None, 1)
    assert first.loss < 1.3
    regression = nn.Linear(2, 2)
    loader = DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2), torch.zeros(8, 2)), 4)
    trainer = AdvancedTrainer(regression, torch.optim.SGD(regression.parameters(), lr=0.1), loader, console=False)
    assert trainer.train(epochs=9, log_interval=1).loss < 0.1
    loader = DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2), torch.zeros(8, 3)), 4)
    trainer = AdvancedTrainer(regression, torch.optim.SGD(regression.parameters(), lr=0.1), loader, console=False)
    with pytest.raises(TypeError, match=r"for an output of float32\[4, 2\] and a target of float32\[4, 3\]"):
        trainer.train()


EVERYTHING = {
    "amp_config": {"opt_level": "O2"},
    "memory_config": {
        "checkpointing": 0.5,
        "activation_compression": True,
        "optimizer_state": "bfloat16",
        "accumulation_steps": 2,
    },
    "schedule": "cosine",
    "warmup_steps": 3,
    "clip_norm": 1.0,
}


@pytest.mark.parametrize("kind", ["ours", "plain loader"])
@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["simple", "everything"])
def test_going_on_is_the_same_run_to_the_bit(tmp_path, kind: str, options) -> None:
    def loader():
        return None if kind == "ours" else DataLoader(points(), 8, shuffle=True)

    whole, expected = trained(epochs=3, loader=loader(), **options)
    trained(max_steps=5, epochs=3, loader=loader(), checkpoint_dir=tmp_path, **_of_whole(options, expected.step))
    rest, result = trained(epochs=3, loader=loader(), checkpoint_dir=tmp_path, **options)
    assert result.step == expected.step > 5
    assert same(weights(rest.model), weights(whole.model))
    for p, q in zip(rest.optimizer.param_groups[0]["params"], whole.optimizer.param_groups[0]["params"], strict=True):
        assert torch.equal(p, q)


def _of_whole(options: dict, total: int) -> dict:
    """``options`` for the first part of a run of ``total`` steps: its schedule is that of the whole."""
    if "schedule" not in options:
        return options
    return {**options, "schedule": Schedule(options["schedule"], total, options["warmup_steps"])}


SCRIPT = """
import os, signal, sys
sys.path[:0] = [{folder!r}]
import torch
from test_trainer import EVERYTHING, trained, weights
steps = 0
def end(trainer, values):
    if values["step"] == int(os.environ.get("STOP_AT", -1)):
        os.kill(os.getpid(), getattr(signal, os.environ["BY"]))
trainer, result = trained(epochs=3, checkpoint_dir={checkpoints!r}, checkpoint_interval=4, hooks={{"step_end": end}},
                          metrics_file={metrics!r}, log_interval=1, **EVERYTHING)
torch.save((weights(trainer.model), result.step, result.interrupted), {result!r})
"""


@pytest.mark.parametrize(("by", "at"), [("SIGKILL", 6), ("SIGTERM", 7)])
def test_a_run_ended_from_outside_goes_on_to_the_bit(tmp_path, by: str, at: int) -> None:
    metrics, result = tmp_path / "metrics.jsonl", tmp_path / "result.pt"
    paths = {"checkpoints": str(tmp_path / "c"), "metrics": str(metrics), "result": str(result)}
    script = SCRIPT.format(folder=str(Path(__file__).parent), **paths)

    def run(**environment: str) -> int:
        env = {**os.environ, **environment}
        return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, timeout=100).returncode

    code = run(STOP_AT=str(at), BY=by)
    if by == "SIGKILL":
        assert code == -signal.SIGKILL and not result.exists()
        (tmp_path / "c" / "partial-00000006").mkdir()  # as a kill while writing leaves it
    else:
        assert code == 0 and torch.load(result)[1:] == (7, True)
    assert run() == 0
    values, step, interrupted = torch.load(result)
    whole, expected = trained(epochs=3, **EVERYTHING)
    assert (step, interrupted) == (expected.step, False) and same(values, weights(whole.model))
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == list(range(1, step + 1))


def test_checkpoints_of_something_else_are_refused(tmp_path) -> None:
    trained(max_steps=2, checkpoint_dir=tmp_path, checkpoint_interval=1, keep_checkpoints=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    other = classifier(6)
    options = {"checkpoint_dir": tmp_path, "console": False}
    loader = OptimizedDataLoader(points(), 8, shuffle=True)
    trainer = AdvancedTrainer(other, torch.optim.AdamW(other.parameters()), loader, **options)
    with pytest.raises(RuntimeError, match="step-00000002 has no model.5.down.bias.*of another model or optimizer"):
        trainer.train()
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 7; there are those of \[2\]"):
        trainer.load_checkpoint(7)


def test_out_of_memory_uses_the_reserve() -> None:
    capacity = torch.npu.mem_get_info(2)[1]
    share = (64 << 20) / capacity
    torch.npu.set_device(2)
    try:
        greedy = []

        def loss_fn(output, target):
            greedy.append(torch.empty(80 << 20, dtype=torch.uint8, device="npu") if not greedy else None)
            greedy[-1] = None
            return F.cross_entropy(output, target)

        memory = {"max_memory_utilization": 2 * share, "emergency_buffer": share}
        with pytest.raises(torch.OutOfMemoryError):
            torch.npu.set_per_process_memory_fraction(share, 2)
            torch.empty(80 << 20, dtype=torch.uint8, device="npu")
        trainer, result = trained(memory_config=memory, loss_fn=loss_fn, max_steps=3)
        assert trainer.allocator.report()["retries"] == 1 and result.step == 3
        trainer.allocator.close()
    finally:
        torch.npu.set_per_process_memory_fraction(1.0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"amp_config": {"optlevel": "O2"}},
            r"amp_config has no key 'optlevel' \(did you mean 'opt_level'\?\); known are enabled, opt_level, dtype",
        ),
        ({"parallel_config": {"strategy": "zero"}}, "one of 'none', 'ddp', 'fsdp', 'tensor', 'pipeline', '3d', but is"),
        ({"parallel_config": {"stages": 4}}, "stages is for strategy 'pipeline' and '3d', but the strategy is 'none'"),
        ({"parallel_config": {"strategy": "pipeline", "stages": 0}}, "stages must be at least 1"),
        ({"memory_config": {"zero_stage": 3}}, "zero_stage 3 does not go with strategy 'none'"),
        ({"memory_config": ["checkpointing"]}, "memory_config must be a dictionary, but is"),
        ({"amp_config": {"opt_level": "O3"}, "parallel_config": {"strategy": "pipeline", "stages": 2}}, "use O2"),
        ({"amp_config": {"init_scale": -1.0}}, "init_scale must be above 0"),
        ({"hooks": {"step_ended": print}}, "there is no event 'step_ended'; there are train_start"),
        ({"hooks": [object()]}, "object has no method for an event"),
        ({"checkpoint_interval": 0}, "checkpoint_interval must be at least 1"),
    ],
)
def test_refusals(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trained(**options)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "tensor", "3d"])
def test_strategies_that_need_ranks_say_so(strategy: str) -> None:
    with pytest.raises(RuntimeError, match="start the script with torchrun"):
        trained(parallel_config={"strategy": strategy})


def test_weights_on_the_meta_device_need_a_module_that_fills_them() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(8, device="meta"))

        def forward(self, x):
            return x * self.factor

    model = nn.Sequential(Scale(), nn.Linear(8, 4, device="meta"))
    with pytest.raises(ValueError, match=r"Scale has weights or buffers on the meta device, but no reset_parameters"):
        AdvancedTrainer(model, torch.optim.SGD(model.parameters()), [])
