"""The stream sanitizer and collectives: no complaint about what PyTorch does, and one about a wait that is missing."""

from __future__ import annotations

import pytest
import test_training as training
import torch
import torch.distributed as dist
from ranks import device
from torch import nn
from torch_cann.sanitizer import StreamSanitizer


def clean(function) -> None:
    with StreamSanitizer("raise") as sanitizer:
        function()
        torch.npu.synchronize()
    assert sanitizer.races == []


@pytest.mark.parametrize(
    "function",
    [training.ddp, training.ddp_with_buckets, training.ddp_with_hook, training.fsdp1, training.fsdp2],
    ids=lambda function: function.__name__,
)
def test_data_parallel_training_is_clean(two_ranks, function) -> None:
    two_ranks.run(clean, function)


def pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(0)
    stage = PipelineStage(nn.Linear(8, 8).to(device()), dist.get_rank(), dist.get_world_size(), device())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    for _ in range(2):
        if dist.get_rank() == 0:
            schedule.step(torch.ones(8, 8, device=device()))
        else:
            schedule.step(target=torch.zeros(8, 8, device=device()), losses=[])


def test_pipeline_training_is_clean(two_ranks) -> None:
    two_ranks.run(clean, pipeline)


def operations() -> None:
    x = torch.ones(64, device=device())
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    x.add_(1)
    parts = torch.empty(2, 64, device=device())
    dist.all_gather_single(parts, x, async_op=True).wait()
    parts.sum()
    dist.broadcast(x, 0)
    x.mul_(2)
    with dist._coalescing_manager(device=device(), async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(parts)
    manager.wait()
    x.add_(parts[0])
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, 1 - dist.get_rank()), dist.P2POp(dist.irecv, parts[0], 1 - dist.get_rank())]
    ):
        work.wait()
    parts.zero_()
    dist.barrier()
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0].mul_(2))
    future.wait().add_(1)
    dist.all_reduce(torch.ones(1 << 20, device=device()), async_op=True)  # dropped before it is waited for
    torch.zeros(1 << 20, device=device())


def test_waited_operations_are_clean(two_ranks) -> None:
    two_ranks.run(clean, operations)


def without_wait(asynchronous_write: bool) -> list[tuple[str, str]]:
    x = torch.ones(64, device=device())
    with StreamSanitizer() as sanitizer:
        work = dist.all_reduce(x, async_op=True)
        x.add_(1) if asynchronous_write else x.sum()
        work.wait()
        x.add_(1)
    text = "\n".join(map(str, sanitizer.races))
    assert "dist.all_reduce(x, async_op=True)" in text or not sanitizer.races
    return [(race.now.operator, race.before.operator) for race in sanitizer.races]


def test_a_missing_wait_is_found(two_ranks) -> None:
    assert two_ranks.run(without_wait, True) == [[("aten::add_", "hccl:all_reduce")]] * 2
    assert two_ranks.run(without_wait, False) == [[("aten::sum", "hccl:all_reduce")]] * 2
