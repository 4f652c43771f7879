"""Pipeline schedules over hccl, and data, tensor and pipeline parallelism at once, against one process."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from decoder import LAYERS, Decoder, batches, check_weights, loss_of, one_process, optimizer_of, stage_of
from ranks import device
from test_tensor_parallel import parallelized
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, schedules

MICROBATCHES = 4


def check_training(stages: list[PipelineStage], schedule) -> None:
    """Losses, where the last stage is, and the weights of all stages are those of one process."""
    expected, weights = one_process()
    first, last = (any(getattr(stage, which) for stage in stages) for which in ("is_first", "is_last"))
    optimizers = [optimizer_of(stage.submod) for stage in stages]
    means = []
    for ids, targets in batches():
        losses: list[torch.Tensor] = []
        schedule.step(
            *([ids.to(device())] if first else []),
            **({"target": targets.to(device()), "losses": losses} if last else {}),
        )
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if last:
            means.append(torch.stack(losses).mean().item())
    if last:
        torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)
    for stage in stages:
        check_weights(stage.submod, weights)


def one_stage_per_rank(name: str) -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    stage = PipelineStage(stage_of(Decoder(), rank, world).to(device()), rank, world, device())
    check_training([stage], getattr(schedules, name)(stage, MICROBATCHES, loss_fn=loss_of))


def two_stages_per_rank(name: str) -> None:
    """On pairs of ranks. Stages run round the pair, or down and back for schedules shaped like a V."""
    pair, _ = dist.new_subgroups(2)
    here = dist.get_rank(pair)
    stages = [
        PipelineStage(stage_of(Decoder(), index, LAYERS).to(device()), index, LAYERS, device(), group=pair)
        for index in ((here, 3 - here) if "V" in name else (here, here + 2))
    ]
    check_training(stages, getattr(schedules, name)(stages, MICROBATCHES, loss_fn=loss_of))


def three_dimensions() -> None:
    """Eight ranks: FSDP2 over two, tensor and sequence parallel over two, a pipeline of two."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("npu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    part = stage_of(parallelized(mesh["tp"]), index, 2)
    for block in part.blocks.values():
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(part, mesh=mesh["dp"])
    stage = PipelineStage(part, index, 2, device(), group=mesh.get_group("pp"))
    schedule = schedules.Schedule1F1B(stage, 2, loss_fn=loss_of)
    expected, weights = one_process()
    optimizer = optimizer_of(part)
    means = []
    for ids, targets in batches():
        losses: list[torch.Tensor] = []
        if index == 0:
            schedule.step(ids.chunk(2)[replica].to(device()))
        else:
            schedule.step(target=targets.chunk(2)[replica].to(device()), losses=losses)
            mean = torch.stack(losses).detach().mean()
            dist.all_reduce(mean, dist.ReduceOp.AVG, group=mesh.get_group("dp"))
            means.append(mean.item())
        optimizer.step()
        optimizer.zero_grad()
    if index == 1:
        torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)
    check_weights(part, weights)


def _named(function, name: str):
    return pytest.param(functools.partial(function, name), id=name)


_CASES = [
    *(_named(one_stage_per_rank, name) for name in ("ScheduleGPipe", "Schedule1F1B")),
    *(
        _named(two_stages_per_rank, name)
        for name in (
            "ScheduleLoopedBFS",
            "ScheduleInterleaved1F1B",
            "ScheduleInterleavedZeroBubble",
            "ScheduleZBVZeroBubble",
            "ScheduleDualPipeV",
        )
    ),
]


@pytest.mark.parametrize("case", _CASES)
def test_schedule_trains_as_one_process(on_four_ranks, case) -> None:
    on_four_ranks(case)


def test_three_dimensions_train_as_one_process(on_eight_ranks) -> None:
    on_eight_ranks(three_dimensions)
