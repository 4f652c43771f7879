"""Making groups: backend names, device meshes, subgroups, options, and the memory their communicators take."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import device, refusal

MIB = 1 << 20


def ones(*sizes: int, **options) -> torch.Tensor:
    return torch.ones(*sizes, device=device(), **options)


def hbm_in_use() -> int:
    free, total = torch.npu.mem_get_info()
    return total - free


def test_registration() -> None:
    import torch_npu

    assert dist.Backend.default_device_backend_map["npu"] == "hccl"
    assert dist.get_default_backend_for_device("npu") == "hccl"
    assert dist.is_hccl_available()
    assert torch_npu.distributed.is_available()
    assert torch_npu.distributed.is_hccl_available()


def check_identity() -> None:
    assert dist.get_backend() == "hccl"
    backend = dist.group.WORLD._get_backend(device())
    assert backend.name() == "hccl"
    assert backend.options.global_ranks_in_group == []
    name = backend.get_hccl_comm_name(dist.get_rank())
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, name)
    assert set(names) == {name}
    assert "Invalid rank -1" in refusal(lambda: backend.get_hccl_comm_name(-1))
    assert isinstance(backend.get_hccl_comm(dist.get_rank()), int)


def test_identity(two_ranks) -> None:
    two_ranks.run(check_identity)


def check_subgroups() -> None:
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([2, 0])]
    for group, members in zip(pairs, ([0, 1], [1, 2], [2, 0])):
        if rank in members:
            tensor = ones(3) * rank
            dist.all_reduce(tensor, group=group)
            assert tensor[0].item() == sum(members)
            dist.broadcast(tensor.fill_(rank), min(members), group=group)
            assert tensor[0].item() == min(members)
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = ones(100_000)
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=alone)
    assert tensor.sum().item() == 100_000
    for group in (*(group for group in pairs if group != dist.GroupMember.NON_GROUP_MEMBER), alone):
        dist.destroy_process_group(group)


def test_subgroups(three_ranks) -> None:
    three_ranks.run(check_subgroups)


def start(store: str, size: int, **arguments) -> int:
    rank = torch.npu.current_device()
    dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=size, **arguments)
    return rank


def mixed_group(store: str) -> None:
    rank = start(store, 2, backend="cpu:gloo,npu:hccl")
    group = dist.group.WORLD
    assert group.name() in ("hccl", "custom")
    assert group._has_hooks() is False
    for tensor in (torch.ones(3), ones(3)):
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2, 2]
    gathered = [None, None]
    dist.all_gather_object(gathered, rank)
    assert gathered == [0, 1]
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).to(device()))
    model(ones(1, 2)).sum().backward()
    dist.destroy_process_group()


def test_mixed_group(new_ranks, tmp_path) -> None:
    new_ranks(2, backend=None).run(mixed_group, str(tmp_path / "store"))


def groups_one_after_the_other(path: str) -> None:
    # torchrun's store outlives a group, and the next one has the same name.
    rank, store = torch.npu.current_device(), dist.FileStore(path, 3)
    for round_ in range(4):
        dist.init_process_group("hccl", store=store, rank=rank, world_size=3)
        tensor = torch.full((1000,), round_ + 1.0, device="npu")
        dist.all_reduce(tensor)
        assert tensor.sum().item() == 3000 * (round_ + 1)
        pair = dist.new_group([0, 2])
        if rank != 1:
            dist.broadcast(tensor.fill_(rank), 2, group=pair)
            assert tensor[0].item() == 2
        dist.destroy_process_group()


def test_groups_one_after_the_other_meet_at_one_store(new_ranks, tmp_path) -> None:
    new_ranks(3, backend=None).run(groups_one_after_the_other, str(tmp_path / "store"))


def group_by_device(store: str) -> None:
    rank = start(store, 2, device_id=torch.device("npu", torch.npu.current_device()))
    assert dist.get_backend() == "hccl"
    tensor = ones(10_000) * rank
    before = hbm_in_use()
    split = dist.split_group(split_ranks=[[0, 1]])
    dist.all_reduce(tensor, group=split)
    assert hbm_in_use() - before == 400 * MIB
    assert tensor[0].item() == 1
    dist.barrier()
    dist.destroy_process_group()
    assert hbm_in_use() <= before - 400 * MIB


def test_group_by_device(new_ranks, tmp_path) -> None:
    new_ranks(2, backend=None).run(group_by_device, str(tmp_path / "store"))


def mesh_without_group(store: str) -> None:
    import os

    from torch.distributed.device_mesh import init_device_mesh

    rank = torch.npu.current_device()
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=store)
    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("outer", "inner"))
    assert dist.group.WORLD._get_backend(device()).name() == "hccl"
    for name, expected in (("outer", rank % 2 * 2 + 2), ("inner", rank // 2 * 4 + 1)):
        tensor = ones(1) * rank
        dist.all_reduce(tensor, group=mesh[name].get_group())
        assert tensor.item() == expected, name
    # The group was made without a backend's name; DDP asks for its default one.
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).to(device()))
    model(ones(1, 2)).sum().backward()
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(16.0).view(4, 4)
    sharded = distribute_tensor(whole.to(device()), mesh["inner"], [Shard(0)])
    assert torch.equal((sharded @ sharded).full_tensor().cpu(), whole @ whole)
    dist.destroy_process_group()


def free_port() -> str:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_device_mesh_starts_hccl(new_ranks) -> None:
    new_ranks(4, backend=None).run(mesh_without_group, free_port())


def communicator_memory(store: str) -> None:
    from torch_npu._C._distributed_c10d import ProcessGroupHCCL

    start(store, 2, backend="hccl")
    kept = ones(1)  # the pool's first segment is not to be counted below
    before = hbm_in_use()
    group = dist.new_group()
    assert hbm_in_use() == before
    dist.all_reduce(torch.empty(0, device=device()), group=group)
    assert hbm_in_use() - before == 2 * 50 * MIB  # HCCL_BUFFSIZE
    peer = 1 - dist.get_rank()
    nothing = torch.empty(0, device=device())
    works = [dist.isend(nothing, peer, group), dist.irecv(nothing, peer, group)]
    for work in works:
        work.wait()
    assert hbm_in_use() - before == (2 * 50 + 2 * 20) * MIB  # P2P_HCCL_BUFFSIZE, default
    dist.destroy_process_group(group)
    assert hbm_in_use() == before

    options = ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_buffer_size": 7, "group_name": "mine"}
    group = dist.new_group(pg_options=options)
    backend = group._get_backend(device())
    assert backend.get_hccl_comm_name(dist.get_rank(), init_comm=False) == ""
    assert backend.get_hccl_comm_name(dist.get_rank()) == "mine"
    assert hbm_in_use() - before == 14 * MIB
    options.hccl_config = {"hccl_buffer_size": 10_000_000}
    too_large = dist.new_group(pg_options=options)
    text = refusal(lambda: dist.barrier(too_large), torch.OutOfMemoryError)
    assert "HCCL_BUFFSIZE" in text or "out of memory" in text
    dist.destroy_process_group()
    assert hbm_in_use() == before
    assert kept.item() == 1


def test_communicators_take_memory_of_the_card(new_ranks, tmp_path) -> None:
    new_ranks(2, backend=None, HCCL_BUFFSIZE="50").run(communicator_memory, str(tmp_path / "store"))


def bad_variable(store: str) -> str:
    return refusal(lambda: start(store, 1, backend="hccl"), ValueError)


def test_a_malformed_variable_is_named(new_ranks, tmp_path) -> None:
    for name, value in (("HCCL_BUFFSIZE", "0"), ("P2P_HCCL_BUFFSIZE", "-1"), ("HCCL_CONNECT_TIMEOUT", "soon")):
        (text,) = new_ranks(1, backend=None, **{name: value}).run(bad_variable, str(tmp_path / name))
        assert name in text
        assert value in text


def debug_group(store: str) -> None:
    rank = start(store, 2, backend="hccl")
    tensor = ones(3) * rank
    dist.all_reduce(tensor)
    assert tensor.tolist() == [1, 1, 1]
    works = [dist.isend(ones(2), 1 - rank), dist.irecv(tensor[:2], 1 - rank)]
    for work in works:
        work.wait()
    dist.barrier()
    dist.destroy_process_group()


def test_distributed_debug_detail(new_ranks, tmp_path) -> None:
    new_ranks(2, backend=None, TORCH_DISTRIBUTED_DEBUG="DETAIL").run(debug_group, str(tmp_path / "store"))
