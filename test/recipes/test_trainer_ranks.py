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


def _o2_against_fsdp2() -> None:
    """In a rank: the trainer's O2 against FSDP2 with a policy for norms and one for the rest, to the bit."""
    from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def batches() -> OptimizedDataLoader:
        return OptimizedDataLoader(points(64), 8)

    plain = classifier().npu()
    whole = MixedPrecisionPolicy(torch.float32, torch.float32, output_dtype=torch.bfloat16)
    narrow = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in list(plain)[1:-1]:
        fully_shard(block.norm, mp_policy=whole)
        fully_shard(block, mp_policy=narrow)
    fully_shard(plain, mp_policy=narrow)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    for x, y in batches():
        torch.nn.functional.cross_entropy(plain(x).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    ours, seen = classifier(), {}
    trainer = AdvancedTrainer(
        ours,
        torch.optim.AdamW(ours.parameters(), lr=1e-2),
        batches(),
        amp_config={"opt_level": "O2", "dtype": "bfloat16"},
        parallel_config={"strategy": "fsdp"},
        console=False,
    )
    for name in ("1.norm", "1.up", "5"):
        module = ours.get_submodule(name)
        module.register_forward_hook(lambda m, _args, _out, name=name: seen.update({name: m.weight.dtype}))
    trainer.train()
    assert seen == {"1.norm": torch.float32, "1.up": torch.bfloat16, "5": torch.bfloat16}
    for (name, p), q in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert p.dtype == torch.float32 and torch.equal(p.full_tensor(), q.full_tensor()), name


def test_o2_under_fsdp_is_its_mixed_precision(two_ranks) -> None:
    two_ranks.run(_o2_against_fsdp2)


def _from_meta(strategy: str) -> tuple[float, float]:
    """In a rank: a model without memory is filled on the cards; the share of it that one card held at most, the loss."""
    from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader

    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
    samples = torch.randn(32, 512, generator=torch.Generator().manual_seed(0))
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    trainer = AdvancedTrainer(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-2),
        OptimizedDataLoader(torch.utils.data.TensorDataset(samples, samples), 8),
        amp_config={"opt_level": "O2", "dtype": "bfloat16"},
        parallel_config={"strategy": strategy},
        console=False,
    )
    held = torch.npu.max_memory_allocated() - before
    return held / sum(4 * p.numel() for p in model.parameters()), trainer.train(epochs=2, log_interval=2).loss


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_model_on_the_meta_device_is_filled_on_the_cards(two_ranks, strategy: str) -> None:
    held, losses = zip(*two_ranks.run(_from_meta, strategy), strict=True)
    assert losses[0] == losses[1] == pytest.approx(1.0, rel=0.2)  # samples have variance 1, outputs nearly none yet
    if strategy == "fsdp":
        assert max(held) < 0.75, "a shard of each layer, and one whole layer at a time"


def _kept_layers() -> tuple[dict[str, str], str]:
    """In a rank: what modules compute with where one of several layers, and a large head, stay float32; a refusal."""
    from cann.recipes.train import MemoryOptimizer
    from ranks import refusal

    def shard(model, *kept) -> None:
        MemoryOptimizer(zero_stage=3, gather_dtype="bfloat16", keep_fp32=kept).prepare(model)

    model = classifier().append(torch.nn.Linear(4, 1 << 18)).npu()
    shard(model, "2", "6")
    seen = {}
    for name in ("0", "1.up", "2.norm", "2.up", "6"):
        module = model.get_submodule(name)
        module.register_forward_hook(lambda m, _args, _out, name=name: seen.update({name: str(m.weight.dtype)}))
    with torch.autocast("npu", torch.bfloat16):
        model(points(4).tensors[0].npu()).float().sum().backward()
    assert all(p.grad is not None for p in model.parameters())

    tied = classifier().npu()
    tied[1].up.weight = tied[2].up.weight
    return seen, refusal(lambda: shard(tied, "1"), ValueError)


def test_layers_that_stay_float32_are_gathered_so(two_ranks) -> None:
    for seen, text in two_ranks.run(_kept_layers):
        exact = {name for name, dtype in seen.items() if dtype == "torch.float32"}
        assert exact == {"2.norm", "2.up", "6"} and len(seen) == 5
        assert "1 is to stay in float32, but shares weights with a module outside it" in text


def _interrupted() -> int:
    """In a rank: rank 1 is asked to stop in step 2."""
    import os
    import signal

    from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader

    def ask(_trainer, values) -> None:
        if dist.get_rank() == 1 and values["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    model = classifier()
    trainer = AdvancedTrainer(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-2),
        OptimizedDataLoader(points(64), 4),
        parallel_config={"strategy": "ddp"},
        console=False,
        hooks={"step_end": ask},
    )
    result = trainer.train()
    assert result.interrupted
    return result.step


def test_all_ranks_stop_after_the_step_that_follows_the_signal(two_ranks) -> None:
    assert two_ranks.run(_interrupted) == [3, 3]


@pytest.mark.parametrize("compression", ["fp16", "bf16", "int8", "topk"])
def test_compressed_gradients_through_the_trainer(two_ranks, tmp_path, compression: str) -> None:
    """Near the run that sends float32, all ranks equal, and gone on with from a checkpoint.

    That is the same run to the bit where nothing is held back. With error feedback the first step of DDP's life goes
    uncompressed, and so the first one after a restart.
    """
    ddp = {"strategy": "ddp", "compression": compression}
    exact = two_ranks.run(run, {"strategy": "ddp"}, {}, None, None, None, 16, "SGD")
    straight = two_ranks.run(run, ddp, {}, None, None, None, 16, "SGD")
    # topk sends one number in a hundred at a time; what it holds back has not arrived yet.
    tolerance = {"fp16": 1e-4, "bf16": 1e-3, "int8": 1e-3, "topk": 2e-2}[compression]
    check(straight, exact[0], tolerance)
    two_ranks.run(run, ddp, {}, None, str(tmp_path), 3, 16, "SGD")
    continued = two_ranks.run(run, ddp, {}, None, str(tmp_path), None, 16, "SGD")
    check(continued, straight[0], 0.0 if compression in ("fp16", "bf16") else tolerance)
    for ranks in (straight, continued):
        assert all(torch.equal(ranks[0][3][name], value) for name, value in ranks[1][3].items())
    assert any(not torch.equal(value, exact[0][3][name]) for name, value in straight[0][3].items()), "as if exact"


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
