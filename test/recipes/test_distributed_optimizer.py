"""DistributedOptimizer against the ordinary optimizer of one process that sees the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_cann.recipes.train import DistributedOptimizer, TopologyAwareScheduler

STAGES = (0, 1, 2)

# Four updates of at most 0.05 in float32; gradients differ by the order of sums, which AdamW's division by their root
# mean square carries into the parameters.
SAME = 2e-6


class Net(nn.Module):
    """Shapes that no number of ranks divides, a parameter without dimensions, and one that is used on demand only."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 33)
        self.scale = nn.Parameter(torch.ones(()))
        self.extra = nn.Linear(33, 33)
        self.last = nn.Linear(33, 5, bias=False)

    def forward(self, x, extra=False):
        x = self.first(x).tanh() * self.scale
        return self.last(self.extra(x) if extra else x)


def _nets() -> tuple[Net, Net]:
    torch.manual_seed(0)
    net, reference = Net(), Net()
    reference.load_state_dict(net.state_dict())
    return net.npu(), reference


def _batches(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(8, 16, generator=generator) for _ in range(steps)]


def _mine(batch: torch.Tensor) -> torch.Tensor:
    import torch.distributed as dist

    return batch.chunk(dist.get_world_size())[dist.get_rank()].npu()


def _values(net: nn.Module) -> list[float]:
    return torch.cat([p.detach().cpu().flatten() for p in net.parameters()]).tolist()


def _groups(net: Net) -> list[dict]:
    rest = [p for name, p in net.named_parameters() if not name.startswith("first")]
    return [{"params": net.first.parameters()}, {"params": rest, "weight_decay": 0.3}]


OPTIMIZERS = {
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
}


def _train(stage: int, kind: str, extra_on: tuple[int, ...], settings: dict) -> tuple[list[float], list[float], int]:
    """Parameters of the ranks and of the reference after four clipped steps with a schedule; numbers in the state."""
    import torch.distributed as dist

    net, reference = _nets()
    if dist.get_rank():
        nn.init.zeros_(net.first.weight)  # rank 0's count
    optimizer_class, defaults = OPTIMIZERS[kind]
    settings = dict(settings)
    if settings.pop("two_levels", False):
        settings["scheduler"] = TopologyAwareScheduler(ranks_per_node=2, overlap_factor=0.5)
    mine = DistributedOptimizer(
        _groups(net), optimizer_class=optimizer_class, zero_stage=stage, bucket_size="1KB", **defaults, **settings
    )
    plain = optimizer_class(_groups(reference), **defaults)
    schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) for optimizer in (mine, plain)]
    ranks = dist.get_world_size()
    for batch in _batches(4):
        mine.zero_grad()
        plain.zero_grad()
        net(_mine(batch), dist.get_rank() in extra_on).square().mean().backward()
        parts = [reference(x, rank in extra_on).square().mean() for rank, x in enumerate(batch.chunk(ranks))]
        torch.stack(parts).mean().backward()
        norms = [mine.clip_grad_norm_(0.5), nn.utils.clip_grad_norm_(reference.parameters(), 0.5)]
        assert "compression" in settings or norms[0].item() == pytest.approx(norms[1].item(), rel=1e-5)
        for step in (mine, plain, *schedules):
            step.step()
    numbers = sum(
        value.numel()
        for values in mine._inner.state.values()
        for key, value in values.items()
        if isinstance(value, torch.Tensor) and key not in ("step", "mu_product")
    )
    return _values(net), _values(reference), numbers


@pytest.mark.parametrize("extra_on", [(), (1,), (0, 1, 2, 3)], ids=["unused", "used on one rank", "used"])
@pytest.mark.parametrize("stage", STAGES)
def test_same_parameters_as_one_process(four_ranks, stage, extra_on):
    answers = four_ranks.run(_train, stage, "AdamW", extra_on, {})
    assert all(mine == answers[0][0] for mine, _, _ in answers)
    assert answers[0][0] == pytest.approx(answers[0][1], abs=SAME)


@pytest.mark.parametrize("kind", ["SGD", "NAdam"])
@pytest.mark.parametrize("stage", [1, 2])
def test_other_optimizers(two_ranks, stage, kind):
    answers = two_ranks.run(_train, stage, kind, (0, 1), {"overlap": stage == 1})
    assert answers[0][0] == answers[1][0]
    assert answers[0][0] == pytest.approx(answers[0][1], abs=SAME)


# fp16 rounds gradients by 2**-11 of their value, which AdamW divides by their size: 4 updates of 0.01.
@pytest.mark.parametrize(("compression", "tolerance"), [(None, SAME), ("fp16", 4 * 0.01 * 0.05)])
@pytest.mark.parametrize("stage", STAGES)
def test_two_levels(four_ranks, stage, compression, tolerance):
    settings = {"two_levels": True, **({"compression": compression} if compression else {})}
    answers = four_ranks.run(_train, stage, "AdamW", (0, 1, 2, 3), settings)
    assert all(mine == answers[0][0] for mine, _, _ in answers)
    assert answers[0][0] == pytest.approx(answers[0][1], abs=tolerance)


def test_state_is_sharded(four_ranks):
    whole = four_ranks.run(_train, 0, "AdamW", (0, 1, 2, 3), {})[0][2]
    parts = [numbers for _, _, numbers in four_ranks.run(_train, 1, "AdamW", (0, 1, 2, 3), {})]
    assert sum(parts) == whole
    assert max(parts) <= whole / 4 + 4 * 2 * 8  # two moments, up to 3 numbers of padding for each of the few buckets


def _accumulate(stage: int, sync_each: bool) -> tuple[list[float], list[float]]:
    net, reference = _nets()
    mine = DistributedOptimizer(net.parameters(), lr=0.05, optimizer_class=torch.optim.SGD, zero_stage=stage)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    for step in range(2):
        for micro, batch in enumerate(_batches(3)):
            if sync_each or micro == 2:
                net(_mine(batch)).square().mean().backward()
            else:
                with mine.no_sync():
                    net(_mine(batch)).square().mean().backward()
            reference(batch).square().mean().backward()
        for optimizer in (mine, plain):
            optimizer.step()
            optimizer.zero_grad(set_to_none=step == 0)
    return _values(net), _values(reference)


@pytest.mark.parametrize("sync_each", [False, True], ids=["no_sync", "averaged each time"])
@pytest.mark.parametrize("stage", STAGES)
def test_gradients_add_up(two_ranks, stage, sync_each):
    for mine, reference in two_ranks.run(_accumulate, stage, sync_each):
        assert mine == pytest.approx(reference, abs=SAME)


def _overflow(stage: int) -> tuple[bool, float, bool]:
    import torch.distributed as dist

    net, _ = _nets()
    optimizer = DistributedOptimizer(net.parameters(), lr=0.05, zero_stage=stage, bucket_size="1KB")
    scaler = torch.amp.GradScaler("npu", init_scale=4.0)
    before = _values(net)
    for step in range(2):
        loss = net(_mine(_batches(1)[0])).square().mean()
        if step == 0 and dist.get_rank() == 1:
            loss = loss + net.last.weight[0, 0] * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step == 0:
            unchanged = _values(net) == before
    return unchanged, scaler.get_scale(), _values(net) != before


@pytest.mark.parametrize("stage", STAGES)
def test_overflow_on_one_rank_is_skipped_by_all(two_ranks, stage):
    assert two_ranks.run(_overflow, stage) == [(True, 2.0, True)] * 2


def _save_and_go_on(stage: int, state: tuple | None, steps: int) -> tuple[list[float], tuple]:
    """Trains on, from ``state`` if given; parameters then, and the state to hand over."""
    net, _ = _nets()
    optimizer = DistributedOptimizer(_groups(net), lr=0.01, zero_stage=stage, bucket_size="1KB")
    if state is not None:
        net.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
    for batch in _batches(steps):
        optimizer.zero_grad()
        net(_mine(batch), True).square().mean().backward()
        optimizer.step()
    return _values(net), ({k: v.cpu() for k, v in net.state_dict().items()}, optimizer.state_dict())


def _to_host(tree):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu().numpy(), tree)


def _from_host(tree):
    import numpy as np

    return torch.utils._pytree.tree_map_only(np.ndarray, torch.from_numpy, tree)


def _by_value(stage: int, state, steps: int):
    values, state = _save_and_go_on(stage, None if state is None else _from_host(state), steps)
    return values, _to_host(state)


@pytest.mark.parametrize("stage", STAGES)
def test_state_goes_on_with_another_number_of_ranks_and_another_stage(four_ranks, two_ranks, stage):
    _, state = four_ranks.run(_by_value, stage, None, 3)[0]
    expected = None
    for ranks, then in ((four_ranks, stage), (two_ranks, 2 - stage // 2), (two_ranks, 0)):
        values, _ = ranks.run(_by_value, then, state, 2)[0]
        expected = expected or values
        assert values == pytest.approx(expected, abs=SAME)
    # And with the ordinary optimizer in this process.
    net, _ = _nets()
    net = net.cpu()
    plain = torch.optim.AdamW(_groups(net), lr=0.01)
    model_state, optimizer_state = _from_host(state)
    net.load_state_dict(model_state)
    plain.load_state_dict(optimizer_state)
    for batch in _batches(2):
        plain.zero_grad()
        net(batch, True).square().mean().backward()
        plain.step()
    assert _values(net) == pytest.approx(expected, abs=SAME)


def _started_during_backward(overlap: bool, factor: float) -> tuple[int, int]:
    net, _ = _nets()
    scheduler = TopologyAwareScheduler(overlap_factor=factor)
    optimizer = DistributedOptimizer(net.parameters(), lr=0.1, bucket_size="1KB", overlap=overlap, scheduler=scheduler)
    started = []
    start = optimizer.communicator.start
    optimizer.communicator.start = lambda flat, key: started.append(key) or start(flat, key)
    seen = []
    net.first.bias.register_hook(lambda grad: seen.append(len(started)))  # of the gradients of first, the first
    net(_mine(_batches(1)[0]), True).square().mean().backward()
    return seen[0], len(started)


def test_buckets_start_while_backward_runs(two_ranks):
    early, total = two_ranks.run(_started_during_backward, True, 1.0)[0]
    assert 0 < early < total
    assert 0 < two_ranks.run(_started_during_backward, True, 0.3)[0][0] < early
    assert two_ranks.run(_started_during_backward, True, 0.0)[0] == (0, total)
    assert two_ranks.run(_started_during_backward, False, 1.0)[0] == (0, total)


def _with_ddp() -> tuple[list[float], list[float]]:
    import torch.distributed as dist

    net, reference = _nets()
    model = nn.parallel.DistributedDataParallel(net, device_ids=[dist.get_rank()], find_unused_parameters=True)
    mine = DistributedOptimizer(net.parameters(), lr=0.01, reduce_gradients=False)
    plain = torch.optim.AdamW(reference.parameters(), lr=0.01)
    for batch in _batches(3):
        for module, optimizer, x in ((model, mine, _mine(batch)), (reference, plain, batch)):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
    assert sum(mine.communicator.sent_bytes.values()) > 0
    return _values(net), _values(reference)


def test_with_ddp(two_ranks):
    for mine, reference in two_ranks.run(_with_ddp):
        assert mine == pytest.approx(reference, abs=SAME)


def test_alone_it_is_the_ordinary_optimizer():
    net, reference = _nets()
    reference = reference.npu()
    mine = DistributedOptimizer(net.parameters(), lr=1e-2, compression="fp16")
    plain = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for batch in _batches(3):
        for module, optimizer in ((net, mine), (reference, plain)):
            optimizer.zero_grad()
            with mine.no_sync():
                module(batch.npu()).square().mean().backward()
            optimizer.step()
    assert mine.zero_stage == 0
    assert _values(net) == _values(reference)
    assert mine.state_dict()["state"][0]["step"] == 3


class _Whole(torch.optim.SGD):
    pass


def _unfreeze() -> str:
    from ranks import refusal

    net, _ = _nets()
    net.first.requires_grad_(False)
    optimizer = DistributedOptimizer(net.parameters())
    net.first.requires_grad_(True)
    net(_mine(_batches(1)[0])).mean().backward()
    return refusal(optimizer.step)


def test_what_is_trained_may_not_change(two_ranks):
    for text in two_ranks.run(_unfreeze):
        assert "make a new DistributedOptimizer when what is trained changes" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"zero_stage": 3}, "zero_stage must be 0, 1 or 2, but is 3; for stage 3 use torch.distributed.fsdp"),
        ({"zero_stage": 1, "optimizer_class": _Whole}, "_Whole may need whole ones: use zero_stage=0"),
        ({"zero_stage": 2, "reduce_gradients": False}, "it needs reduce_gradients=True"),
        ({"compression": "gzip"}, "compression must be one of"),
        ({"lr": -1.0}, "Invalid learning rate"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        DistributedOptimizer(nn.Linear(2, 2).parameters(), **arguments)


def test_wrong_state_and_later_groups():
    optimizer = DistributedOptimizer(nn.Linear(2, 2).parameters())
    with pytest.raises(ValueError, match=r"groups of \[1\] parameters, but this optimizer has groups of \[2\]"):
        optimizer.load_state_dict(torch.optim.AdamW([torch.ones(2, requires_grad=True)]).state_dict())
    with pytest.raises(NotImplementedError, match="make a new DistributedOptimizer"):
        optimizer.add_param_group({"params": [torch.ones(2, requires_grad=True)]})
