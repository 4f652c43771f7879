"""DeviceMesh, DTensor, and tensor, sequence, loss and context parallelism over hccl, against one process."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from decoder import LENGTH, Decoder, batches, check_weights, loss_of, one_process, optimizer_of
from ranks import device
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn import functional as F


def whole_mesh() -> DeviceMesh:
    return init_device_mesh("npu", (dist.get_world_size(),), mesh_dim_names=("tp",))


def mesh_of_pairs() -> None:
    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank = dist.get_rank()
    assert mesh.get_coordinate() == (rank // 2, rank % 2) or mesh.get_coordinate() == [rank // 2, rank % 2]
    for name, members in (("dp", {rank % 2, rank % 2 + 2}), ("tp", {rank // 2 * 2, rank // 2 * 2 + 1})):
        total = torch.tensor(float(rank), device=device())
        dist.all_reduce(total, group=mesh.get_group(name))
        assert total.item() == sum(members)
    flat = mesh["dp", "tp"]._flatten("all")
    assert flat.size() == dist.get_world_size()


def redistribution() -> None:
    """From each placement to each, with sizes that do not divide by the ranks."""
    mesh = whole_mesh()
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(6, 5, generator=generator).to(device())
    world = dist.get_world_size()
    share = (dist.get_rank() + 1) / (world * (world + 1) / 2)
    starts = [distribute_tensor(whole, mesh, [placement]) for placement in (Replicate(), Shard(0), Shard(1))]
    starts += [
        DTensor.from_local(local, mesh, [Partial(operation)])
        for operation, local in (
            ("sum", whole * share),
            ("avg", whole * share * world),
            ("max", whole - dist.get_rank()),
        )
    ]
    for start, target in itertools.product(starts, (Replicate(), Shard(0), Shard(1))):
        moved = start.redistribute(placements=[target])
        assert moved.placements == (target,)
        torch.testing.assert_close(
            moved.full_tensor(), whole, msg=lambda text, start=start: f"{start.placements} to {target}: {text}"
        )


def redistribution_in_two_dimensions() -> None:
    mesh = init_device_mesh("npu", (2, 2))
    whole = torch.arange(42.0, device=device()).reshape(6, 7)
    pairs = list(itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2))
    for source, target in itertools.product(pairs, pairs):
        moved = distribute_tensor(whole, mesh, source).redistribute(placements=target)
        assert torch.equal(moved.full_tensor(), whole), (source, target)


def operators() -> None:
    """Products, reductions, softmax, embedding and their gradients on shards."""
    mesh = whole_mesh()
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(8, 12, generator=generator), torch.randn(12, 4, generator=generator)

    def compute(a, b):
        return ((a @ b).softmax(-1) + a.mean(1, keepdim=True) * b.sum()).square().sum()

    plain = [tensor.clone().requires_grad_() for tensor in (a, b)]
    expected = compute(*plain)
    expected.backward()
    for left, right in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
        split = [
            distribute_tensor(tensor.to(device()), mesh, [placement]).requires_grad_()
            for tensor, placement in ((a, left), (b, right))
        ]
        result = compute(*split)
        result.backward()
        torch.testing.assert_close(result.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-3)
        for found, reference in zip(split, plain, strict=True):
            torch.testing.assert_close(found.grad.full_tensor().cpu(), reference.grad, rtol=1e-4, atol=1e-3)


def random_numbers() -> None:
    """Shards of a random tensor differ, replicas do not, and the whole is the same each time."""
    import torch.distributed.tensor as dtensor

    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("replicate", "shard"))
    wholes = []
    for _ in range(2):
        torch.manual_seed(5)
        made = dtensor.randn(8, 16, device_mesh=mesh, placements=[Replicate(), Shard(0)])
        wholes.append(made.full_tensor())
    assert torch.equal(*wholes)
    assert not torch.equal(wholes[0][:4], wholes[0][4:])
    everyone = [torch.empty_like(made.to_local()) for _ in range(2)]
    dist.all_gather(everyone, made.to_local(), group=mesh.get_group("replicate"))
    assert torch.equal(*everyone)
    dropped = F.dropout(distribute_tensor(torch.ones(8, 64, device=device()), mesh, [Replicate(), Shard(0)]), 0.5)
    kept = dropped.full_tensor()
    assert 0.3 < (kept > 0).float().mean() < 0.7 and not torch.equal(kept[:4], kept[4:])


def tensor_parallel_plan(sequence: bool, loss: bool) -> tuple[dict, dict]:
    """Plans for the model and for each of its blocks; with `sequence`, norms work on a part of the positions."""
    from torch.distributed.tensor import parallel as tp

    whole, part = Replicate(), Shard(1)
    layout = part if sequence else whole
    block = {
        "attention.query": tp.ColwiseParallel(),
        "attention.key": tp.ColwiseParallel(),
        "attention.value": tp.ColwiseParallel(),
        "attention.out": tp.RowwiseParallel(output_layouts=layout),
        "mlp.up": tp.ColwiseParallel(),
        "mlp.down": tp.RowwiseParallel(output_layouts=layout),
    }
    model = {
        "embed": tp.RowwiseParallel(input_layouts=whole, output_layouts=layout),
        "head": tp.ColwiseParallel(
            input_layouts=layout, output_layouts=Shard(-1) if loss else whole, use_local_output=not loss
        ),
    }
    if sequence:
        for name in ("attention", "mlp"):
            block[f"{name}_norm"] = tp.SequenceParallel()
            block[name] = tp.PrepareModuleInput(input_layouts=part, desired_input_layouts=whole)
        model["norm"] = tp.SequenceParallel()
    return model, block


def parallelized(mesh: DeviceMesh, sequence: bool = False, loss: bool = False) -> nn.Module:
    from torch.distributed.tensor.parallel import parallelize_module

    model = Decoder().to(device())
    outer, inner = tensor_parallel_plan(sequence, loss)
    for block in model.blocks.values():
        parallelize_module(block, mesh, inner)
    return parallelize_module(model, mesh, outer)


def train_tensor_parallel(model: nn.Module, loss_context) -> None:
    expected, weights = one_process()
    optimizer = optimizer_of(model)
    losses = []
    for ids, targets in batches():
        with loss_context():
            loss = loss_of(model(ids.to(device())), targets.to(device()))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item() if isinstance(loss, DTensor) else loss.item())
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    check_weights(model, weights)


def tensor_parallel() -> None:
    train_tensor_parallel(parallelized(whole_mesh()), torch.enable_grad)


def sequence_parallel() -> None:
    train_tensor_parallel(parallelized(whole_mesh(), sequence=True), torch.enable_grad)


def loss_parallel() -> None:
    from torch.distributed.tensor.parallel import loss_parallel

    train_tensor_parallel(parallelized(whole_mesh(), sequence=True, loss=True), loss_parallel)


def tensor_parallel_checkpointed() -> None:
    """Activation checkpointing round blocks whose weights are split, with random numbers replayed."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = parallelized(whole_mesh(), sequence=True)
    for name in list(model.blocks):
        model.blocks[name] = checkpoint_wrapper(model.blocks[name])
    expected, _ = one_process()
    ids, targets = batches()[0]
    loss = loss_of(model(ids.to(device())), targets.to(device()))
    loss.backward()
    torch.testing.assert_close(loss.item(), expected[0], rtol=1e-4, atol=1e-5)
    plain = Decoder()
    loss_of(plain(ids), targets).backward()
    gradient = model.head.weight.grad.full_tensor()
    torch.testing.assert_close(gradient.cpu(), plain.head.weight.grad, rtol=1e-4, atol=1e-5)


def sharded_with_fsdp() -> None:
    """Two ways at once: FSDP2 along one dimension of the mesh, tensor parallel along the other."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelized(mesh["tp"], sequence=True)
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    expected, weights = one_process()
    optimizer = optimizer_of(model)
    losses = []
    for ids, targets in batches():
        rows = ids.chunk(2)[mesh.get_local_rank("dp")].to(device())
        loss = loss_of(model(rows), targets.chunk(2)[mesh.get_local_rank("dp")].to(device()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG, group=mesh.get_group("dp"))
        losses.append(mean.item())
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    check_weights(model, weights)


def context_parallel() -> None:
    """Each rank has a part of the positions; keys and values travel round the ring."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch_npu.distributed.tensor.experimental._context_parallel._npu_attention import (
        npu_enable_cp_dtensor_dispatcher,
    )

    npu_enable_cp_dtensor_dispatcher()
    mesh = whole_mesh()
    expected, weights = one_process()
    model = Decoder().to(device())
    optimizer = optimizer_of(model)
    losses = []
    for ids, targets in batches():
        ids, targets = ids.to(device()), targets.to(device())
        with context_parallel(mesh, buffers=[ids, targets], buffer_seq_dims=[1, 1]):
            assert ids.shape[1] == LENGTH // mesh.size()
            loss = loss_of(model(ids), targets)
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    check_weights(model, weights)


_CASES = [
    mesh_of_pairs,
    redistribution,
    redistribution_in_two_dimensions,
    operators,
    random_numbers,
    tensor_parallel,
    sequence_parallel,
    loss_parallel,
    tensor_parallel_checkpointed,
    sharded_with_fsdp,
    context_parallel,
]


@pytest.mark.parametrize("case", _CASES)
def test_same_as_one_process(on_four_ranks, case) -> None:
    on_four_ranks(case)
