"""DistributedDataParallel's ways to reduce gradients, and optimizers that share the state among ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import device, refusal
from test_training import Model, batches, check_against_one_process, clip_plain, my_rows, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return (model(rows) - rows.roll(1, -1)).square().mean()


def whole_gradients(batch: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of one process on the CPU for all rows of a batch."""
    model = Model()
    loss_of(model, batch).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def check_gradients(model: nn.Module, batch: torch.Tensor, tolerance: float) -> None:
    """Every gradient is that of one process; the error is relative to the largest component."""
    expected = whole_gradients(batch)
    for name, parameter in model.named_parameters():
        error = (parameter.grad.cpu() - expected[name]).abs().max() / expected[name].abs().max()
        assert error <= tolerance, f"{name}: {error}"


def static_graph() -> None:
    model = DistributedDataParallel(Model().to(device()), static_graph=True, gradient_as_bucket_view=True)
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, model.module.state_dict())


def activation_checkpointing() -> None:
    """A layer that runs twice in backward, which DDP allows with a static graph."""
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Model):
        def forward(self, x):
            x = self.first(x)
            return self.last(x + self.scale * checkpoint(self.inner, x, use_reentrant=False))

    model = DistributedDataParallel(Checkpointed().to(device()), static_graph=True)
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, model.module.state_dict())


def gradients_are_views_of_buckets() -> None:
    model = DistributedDataParallel(Model().to(device()), gradient_as_bucket_view=True)
    for batch in batches()[:2]:
        model.zero_grad(set_to_none=False)
        loss_of(model, my_rows(batch)).backward()
        check_gradients(model.module, batch, 1e-5)
    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert len(storages) == 1


def no_sync() -> None:
    """Gradients of two halves of a batch, of which only the second is reduced."""
    batch = torch.cat(batches()[:2])
    model = DistributedDataParallel(Model().to(device()))
    first, second = my_rows(batch).chunk(2)
    with model.no_sync():
        (loss_of(model, first) / 2).backward()
    mine = model.module.first.weight.grad.clone()
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    assert not all(torch.equal(mine, other) for other in everyone)
    (loss_of(model, second) / 2).backward()
    check_gradients(model.module, batch, 1e-5)


def unused_on_some_ranks() -> None:
    """A layer that only even ranks use gets the mean over all ranks."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"shared": nn.Linear(4, 4), "rare": nn.Linear(4, 4)}).to(device())

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x, rare: bool):
            x = self.layers["shared"](x)
            return self.layers["rare"](x) if rare else x

    wrapped = DistributedDataParallel(Branching(), find_unused_parameters=True)
    rank, world = dist.get_rank(), dist.get_world_size()
    wrapped(torch.full((2, 4), rank + 1.0, device=device()), rank % 2 == 0).sum().backward()
    rows = torch.cat([model["shared"](torch.full((2, 4), r + 1.0, device=device())) for r in range(0, world, 2)])
    expected = rows.detach().sum(0).expand(4, 4) / world
    torch.testing.assert_close(model["rare"].weight.grad, expected)


def join_with_uneven_inputs() -> None:
    """Rank r has r + 1 inputs. DDP divides by the number of ranks that still have one, if asked to."""
    world, rank = dist.get_world_size(), dist.get_rank()
    linear = nn.Linear(1, 1, bias=False, device=device())
    nn.init.zeros_(linear.weight)
    model = DistributedDataParallel(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with model.join(divide_by_initial_world_size=False):
        for step in range(rank + 1):
            optimizer.zero_grad()
            model(torch.full((1, 1), float(step + 1), device=device())).sum().backward()
            optimizer.step()
    expected = -sum(range(1, world + 1))  # each step's gradient is its number, whoever is left
    assert linear.weight.item() == pytest.approx(expected)


def join_with_a_sharded_optimizer() -> None:
    """As above, and a rank that has no more inputs still steps the parameters it keeps the state of. Its gradients stay
    those of its last step, as PyTorch leaves them, so all steps here have the same ones."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    world, rank = dist.get_world_size(), dist.get_rank()

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(world))  # one for each rank to keep

        def forward(self, x):
            return sum(part(x) for part in self.parts)

    model = DistributedDataParallel(Sum().to(device()))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1.0)
    with Join([model, optimizer], divide_by_initial_world_size=False):
        for _ in range(rank + 1):
            optimizer.zero_grad()
            model(torch.ones(1, 1, device=device())).sum().backward()
            optimizer.step()
    assert [parameter.item() for parameter in model.parameters()] == [-world] * world


def zero_redundancy_state() -> None:
    """Each rank holds a part of the state; consolidated, it is that of one process and loads again."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, plain = Model().to(device()), Model()
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=1e-2, parameters_as_bucket_view=True
    )
    reference = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    for batch in batches():
        for each, stepper in ((model, optimizer), (plain, reference)):
            stepper.zero_grad()
            loss_of(each, batch.to(next(each.parameters()).device)).backward()
            stepper.step()
    held = sum(len(group["params"]) for group in optimizer.optim.param_groups)
    assert held < len(list(model.parameters()))
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        state, expected = optimizer.state_dict(), reference.state_dict()
        assert state["state"].keys() == expected["state"].keys()
        for index, moments in expected["state"].items():
            torch.testing.assert_close(
                state["state"][index]["exp_avg"].cpu(), moments["exp_avg"], rtol=1e-3, atol=1e-6
            )
        optimizer.load_state_dict(state)


def zero_redundancy_overlapped() -> None:
    """The optimizer steps inside DDP's communication hook, from the third iteration on, when buckets are final."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Model().to(device()), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1, momentum=0.9
    )
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, optimizer))
    plain = Model()
    reference = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for number, batch in enumerate(batches()):
        model.zero_grad()
        loss_of(model, my_rows(batch)).backward()
        if number >= 2:
            reference.zero_grad()
            loss_of(plain, batch).backward()
            reference.step()
    torch.npu.synchronize()
    for found, expected in zip(model.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def compressed(hook, dtype: torch.dtype) -> None:
    model = DistributedDataParallel(Model().to(device()))
    model.register_comm_hook(None, hook)
    batch = batches()[0]
    loss_of(model, my_rows(batch)).backward()
    check_gradients(model.module, batch, 4 * torch.finfo(dtype).eps)
    for parameter in model.parameters():  # what came back had been 16 bits wide
        assert torch.equal(parameter.grad, parameter.grad.to(dtype).to(torch.float32))


def fp16_compression() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    compressed(fp16_compress_hook, torch.float16)


def bf16_compression() -> None:
    """PyTorch 2.13 refuses its own bf16 hook by name where there is neither CUDA nor XPU; its body works."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = DistributedDataParallel(Model().to(device()))
    assert "BF16 all reduce" in refusal(lambda: model.register_comm_hook(None, bf16_compress_hook), TypeError)

    def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return bf16_compress_hook(state, bucket)

    hook.__annotations__ = bf16_compress_hook.__annotations__
    compressed(hook, torch.bfloat16)


def power_sgd(rank: int) -> DistributedDataParallel:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    model = DistributedDataParallel(Model().to(device()))
    state = powersgd.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, powersgd.powerSGD_hook)
    return model


def power_sgd_of_full_rank() -> None:
    """Factors as wide as the matrices lose nothing."""
    model = power_sgd(16)
    losses = train(model, my_rows, clip_plain)
    check_against_one_process(losses, model.module.state_dict())


def power_sgd_of_rank_one() -> None:
    """What one step leaves out comes in the next: equal gradients in every step add up to the exact sum."""
    batch = batches()[0]
    model = power_sgd(1)
    total: dict[str, torch.Tensor] = {}
    steps = 60
    for _ in range(steps):
        model.zero_grad()
        loss_of(model, my_rows(batch)).backward()
        for name, parameter in model.module.named_parameters():
            total[name] = total.get(name, 0) + parameter.grad.cpu() / steps
    for name, exact in whole_gradients(batch).items():
        assert (total[name] - exact).norm() <= 0.2 * exact.norm(), name


def post_local_sgd() -> None:
    """After the first two steps gradients are averaged in pairs of ranks only, weights by the averager."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    pairs, _ = dist.new_subgroups(2)
    model = DistributedDataParallel(Model().to(device()))
    model.register_comm_hook(
        PostLocalSGDState(process_group=None, subgroup=pairs, start_localSGD_iter=1), post_localSGD_hook
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    plain = Model()
    reference = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in batches():
        optimizer.zero_grad()
        loss_of(model, my_rows(batch)).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        reference.zero_grad()
        loss_of(plain, batch).backward()
        reference.step()
    for found, expected in zip(model.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def synchronized_batch_norm() -> None:
    """Statistics over the rows of all ranks, forward and backward."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 16))
    batch = batches()[0]
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
    model = DistributedDataParallel(converted.to(device()))
    loss_of(model, my_rows(batch)).backward()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 16))
    loss_of(plain, batch).backward()
    for found, expected in zip(model.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.module[1].running_var.cpu(), plain[1].running_var)


_CASES = [
    static_graph,
    activation_checkpointing,
    gradients_are_views_of_buckets,
    no_sync,
    unused_on_some_ranks,
    join_with_uneven_inputs,
    join_with_a_sharded_optimizer,
    zero_redundancy_state,
    zero_redundancy_overlapped,
    fp16_compression,
    bf16_compression,
    power_sgd_of_full_rank,
    power_sgd_of_rank_one,
    post_local_sgd,
    synchronized_batch_norm,
]


@pytest.mark.parametrize("case", _CASES)
def test_same_as_one_process(on_four_ranks, case) -> None:
    on_four_ranks(case)
