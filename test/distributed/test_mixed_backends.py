"""Groups with a backend for each kind of device, bound to a card: splitting them, and meshes over them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import device


def start(store: str) -> None:
    rank = torch.npu.current_device()
    dist.init_process_group(
        "cpu:gloo,npu:hccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=4,
        device_id=torch.device("npu", rank),
    )


def check_split_and_mesh() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    rank = dist.get_rank()
    assert dist.group.WORLD.bound_device_id == device()
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    for where in ("cpu", device()):
        tensor = torch.full((10,), float(rank), device=where)
        dist.all_reduce(tensor, group=half)
        assert tensor[0].item() == (1.0 if rank < 2 else 5.0)
    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("dp", "tp"))
    for name, expected in (("tp", 1.0 if rank < 2 else 5.0), ("dp", 2.0 if rank % 2 == 0 else 4.0)):
        tensor = torch.full((10,), float(rank), device=device())
        dist.all_reduce(tensor, group=mesh.get_group(name))
        assert tensor[0].item() == expected
    names = [None] * 4
    dist.all_gather_object(names, rank)
    assert names == [0, 1, 2, 3]
    dist.barrier()


def test_split_and_mesh_of_a_mixed_group_bound_to_cards(new_ranks, tmp_path) -> None:
    ranks = new_ranks(4, backend=None)
    ranks.run(start, str(tmp_path / "store"))
    ranks.run(check_split_and_mesh)
    assert ranks.exit_codes() == [0] * 4
