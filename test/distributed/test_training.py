"""Data-parallel training over hccl gives the losses and weights of one process that sees the whole batch."""

from __future__ import annotations


import pytest
import torch
import torch.distributed as dist
from ranks import device
from torch import nn

STEPS, BATCH, WIDTH = 6, 12, 16


class Model(nn.Module):
    """A small network with what data parallelism stumbles over: tied weights, a buffer, a residual path."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, WIDTH))
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last.weight = self.first.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.scale * self.inner(x))


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(STEPS)]


def train(model, step_input, clip, autocast: bool = False) -> list[torch.Tensor]:
    """Losses of STEPS steps, each the mean over the inputs of this process."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        x = step_input(batch)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            loss = (model(x) - x.roll(1, -1)).square().mean()
        loss.backward()
        clip(model)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def clip_plain(model) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def one_process() -> tuple[list[float], dict[str, torch.Tensor]]:
    model = Model()
    losses = train(model, lambda batch: batch, clip_plain)
    return [loss.item() for loss in losses], model.state_dict()


def my_rows(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(dist.get_world_size())[dist.get_rank()].to(device())


def mean_over_ranks(losses: list[torch.Tensor]) -> list[float]:
    stacked = torch.stack(losses)
    dist.all_reduce(stacked, dist.ReduceOp.AVG)
    return stacked.tolist()


def full_state(model) -> dict[str, torch.Tensor]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def check_against_one_process(losses: list[torch.Tensor], state: dict[str, torch.Tensor]) -> None:
    expected_losses, expected_state = one_process()
    torch.testing.assert_close(mean_over_ranks(losses), expected_losses, rtol=1e-4, atol=1e-5)
    if dist.get_rank() == 0:
        assert set(state) == set(expected_state)
        for name, tensor in expected_state.items():
            found = state[name].cpu()
            torch.testing.assert_close(found, tensor, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")


def ddp(**settings) -> None:
    model = nn.parallel.DistributedDataParallel(Model().to(device()), device_ids=[device().index], **settings)
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, model.module.state_dict())


def ddp_with_buckets() -> None:
    ddp(bucket_cap_mb=0.001, gradient_as_bucket_view=True)


def ddp_statistics() -> dict:
    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    train(model, my_rows, clip_plain)
    return {name: value for name, value in model._get_ddp_logging_data().items() if name.startswith("avg_")}


def test_ddp_statistics_have_times(two_ranks) -> None:
    for statistics in two_ranks.run(ddp_statistics):
        assert statistics["avg_forward_compute_time"] > 0
        assert statistics["avg_backward_comm_time"] > 0


def ddp_with_hook() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, model.module.state_dict())


def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        Model().to(device()),
        auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
        device_id=device(),
        use_orig_params=True,
    )
    losses = train(model, my_rows, lambda model: model.clip_grad_norm_(0.05))
    check_against_one_process(losses, full_state(model))


def fsdp2(divide_factor: bool = False) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("npu", (dist.get_world_size(),))
    model = Model().to(device())
    fully_shard(model.inner, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if divide_factor:  # reduces with PREMUL_SUM
        for module in (model, model.inner):
            module.set_gradient_divide_factor(float(dist.get_world_size()))
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, full_state(model))


def fsdp2_with_divide_factor() -> None:
    fsdp2(divide_factor=True)


def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Model().to(device()))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        x = my_rows(batch)
        loss = (model(x) - x.roll(1, -1)).square().mean()
        loss.backward()
        clip_plain(model)
        optimizer.step()
        losses.append(loss.detach())
    check_against_one_process(losses, model.module.state_dict())


@pytest.mark.parametrize(
    "way", [ddp, ddp_with_buckets, ddp_with_hook, fsdp1, fsdp2, fsdp2_with_divide_factor, zero_redundancy]
)
def test_same_as_one_process(two_ranks, way) -> None:
    two_ranks.run(way)


def mixed_precision() -> tuple[list[float], list[float]]:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    results = []
    for way in ("ddp", "fsdp2"):
        model = Model().to(device())
        if way == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        else:
            fully_shard(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))
        results.append(mean_over_ranks(train(model, my_rows, clip_plain, autocast=way == "ddp")))
    return tuple(results)


def test_bfloat16_follows_float32(two_ranks) -> None:
    expected, _ = one_process()
    for losses in two_ranks.run(mixed_precision)[0]:
        assert losses == pytest.approx(expected, rel=0.03)


def unused_parameters() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    model = nn.parallel.DistributedDataParallel(Half().to(device()), find_unused_parameters=True)
    for _ in range(2):
        model(torch.ones(2, 4, device=device())).sum().backward()
    assert model.module.unused.weight.grad is None
    # Ranks with different numbers of inputs.
    with model.join():
        for _ in range(1 + dist.get_rank()):
            model(torch.ones(2, 4, device=device())).sum().backward()


def test_ddp_with_unused_parameters_and_uneven_inputs(two_ranks) -> None:
    two_ranks.run(unused_parameters)
