"""AdvancedTrainer over ranks: as one process with the whole batch, and gone on with by other numbers of ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from small import classifier, points

# Sums over ranks have another order; 16-bit products round at other numbers.
TOLERANCE = {"float32": 1e-5, "16 bits": 1e-2}

PLAN = {"[1234].up": "colwise", "[1234].down": "rowwise"}
STRATEGIES = {
    "ddp": ({"strategy": "ddp"}, {}),
    "ddp, ZeRO 1": ({"strategy": "ddp"}, {"zero_stage": 1}),
    "ddp, accumulated": ({"strategy": "ddp"}, {"accumulation_steps": 2, "checkpointing": True}),
    "fsdp": ({"strategy": "fsdp"}, {}),
    "fsdp, ZeRO 2": ({"strategy": "fsdp"}, {"zero_stage": 2, "accumulation_steps": 2}),
    "tensor": ({"strategy": "tensor", "tensor_plan": PLAN}, {}),
    "pipeline": ({"strategy": "pipeline", "stages": 2, "micro_batches": 2}, {}),
}
OF_FOUR = {
    "data and pipeline": {"strategy": "3d", "stages": 2, "micro_batches": 2},
    "pipeline and tensor": {
        "strategy": "3d",
        "stages": 2,
        "micro_batches": 2,
        "tensor_parallel": 2,
        "tensor_plan": PLAN,
    },
    "tensor and fsdp": {"strategy": "tensor", "tensor_parallel": 2, "tensor_plan": PLAN},
}


def run(parallel, memory, amp=None, folder=None, max_steps=None, batch: int = 16, optimizer: str = "AdamW"):
    """In a rank, or alone: trains two epochs in batches of ``batch`` over all that share the data; loss, weights."""
    from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader

    model = classifier()
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2)
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    size = batch // _shares(ranks, **(parallel or {}))
    trainer = AdvancedTrainer(
        model,
        made,
        OptimizedDataLoader(points(64), size, shuffle=True),
        OptimizedDataLoader(points(32, seed=4), size),
        amp_config=amp,
        parallel_config=parallel,
        memory_config=memory,
        clip_norm=0.7,
        checkpoint_dir=folder,
        checkpoint_interval=100,
        console=False,
    )
    result = trainer.train(epochs=2, max_steps=max_steps, log_interval=1)
    strategy = (parallel or {}).get("strategy")
    if strategy == "3d":
        return result.step, result.loss, result.val_loss, {}  # read from the checkpoint, by one process
    state = (trainer.strategy.module if strategy == "pipeline" else trainer.model).state_dict()
    return result.step, result.loss, result.val_loss, {name: _whole(value) for name, value in state.items()}


def _shares(ranks: int, strategy: str = "none", stages: int = 1, tensor_parallel: int | None = None, **_rest) -> int:
    """How many ranks read different data."""
    if strategy in ("ddp", "fsdp"):
        return ranks
    if strategy == "3d":
        return ranks // stages // (tensor_parallel or 1)
    return ranks // (tensor_parallel or ranks) if strategy == "tensor" else 1


def _whole(value):
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.float().cpu()


def check(got, expected, tolerance: float) -> None:
    for step, loss, val_loss, state in got:
        assert step == expected[0]
        assert loss == pytest.approx(expected[1], rel=10 * tolerance)
        assert val_loss == pytest.approx(expected[2], rel=10 * tolerance)
        assert state.keys() == expected[3].keys()
        for name, value in state.items():
            difference = (value - expected[3][name]).abs().max().item()
            assert difference <= tolerance, f"{name} differs by {difference}"


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_are_one_process(two_ranks, name: str) -> None:
    parallel, memory = STRATEGIES[name]
    accumulation = {"accumulation_steps": memory.get("accumulation_steps", 1)}
    check(two_ranks.run(run, parallel, memory), run(None, accumulation), TOLERANCE["float32"])


@pytest.mark.parametrize("name", ["ddp", "fsdp", "tensor", "pipeline"])
def test_with_mixed_precision(two_ranks, name: str) -> None:
    parallel, memory = STRATEGIES[name]
    amp = {"opt_level": "O2"}
    expected = run(None, {}, amp, optimizer="SGD")
    got = two_ranks.run(run, parallel, memory, amp, None, None, 16, "SGD")
    check(got, expected, TOLERANCE["16 bits"])


@pytest.mark.parametrize("name", OF_FOUR)
def test_four_ranks_are_one_process(four_ranks, tmp_path, name: str) -> None:
    """Compared through their checkpoint, which one process reads."""
    expected = run(None, {})
    for got in four_ranks.run(run, OF_FOUR[name], {}, None, str(tmp_path)):
        assert got[:3] == pytest.approx(expected[:3], rel=1e-4)
    check([run(None, {}, None, str(tmp_path))], expected, TOLERANCE["float32"])


@pytest.mark.parametrize("name", ["fsdp", "ddp, ZeRO 1", "pipeline"])
def test_going_on_with_another_number_of_ranks(two_ranks, tmp_path, name: str) -> None:
    """Two ranks begin, two others go on sharded by FSDP, and one process ends it."""
    expected = run(None, {})
    two_ranks.run(run, *STRATEGIES[name], None, str(tmp_path), 3)
    two_ranks.run(run, {"strategy": "fsdp"}, {}, None, str(tmp_path), 5)
    check([run(None, {}, None, str(tmp_path))], expected, TOLERANCE["float32"])


def test_four_ranks_go_on_for_two(two_ranks, four_ranks, tmp_path) -> None:
    fsdp = {"strategy": "fsdp"}
    two_ranks.run(run, fsdp, {}, None, str(tmp_path), 4)
    check(four_ranks.run(run, fsdp, {}, None, str(tmp_path)), run(None, {}), TOLERANCE["float32"])


def _refusals() -> list[str]:
    from cann.recipes.train import AdvancedTrainer
    from ranks import refusal
    from torch.utils.data import DataLoader

    def attempt(parallel, loader=None):
        model = classifier()
        loader = loader or DataLoader(points(), 8)
        return refusal(
            lambda: AdvancedTrainer(model, torch.optim.SGD(model.parameters()), loader, parallel_config=parallel),
            ValueError,
        )

    return [
        attempt(None),
        attempt({"strategy": "ddp"}),
        attempt({"strategy": "tensor"}),
        attempt({"strategy": "tensor", "tensor_plan": {"blocks.*": "colwise"}}),
        attempt({"strategy": "tensor", "tensor_parallel": 3}),
        attempt({"strategy": "pipeline", "stages": 3}),
        attempt({"strategy": "3d", "stages": 4}),
    ]


def test_refusals(two_ranks) -> None:
    wanted = [
        "strategy 'none' with 2 ranks would train 2 models",
        "of the 2 that share the data would read part 0 of 1; use an OptimizedDataLoader",
        "tensor parallelism needs tensor_plan",
        "'blocks.*' matches no module of Sequential",
        "2 ranks cannot form groups of tensor_parallel 3",
        "of 3 stages runs in one process or on 3 ranks, not on 2",
        "2 ranks are no multiple of stages 4 x tensor_parallel 1",
    ]
    for texts in two_ranks.run(_refusals):
        assert all(part in text for part, text in zip(wanted, texts, strict=True)), texts
