"""The process groups of 3D parallelism: data, model and pipeline.

torchrun --nproc-per-node 8 examples/large_models/parallel_groups.py
torchrun --nproc-per-node 16 examples/large_models/parallel_groups.py --model 4

Ranks are numbered so that the members of a data parallel group are neighbours, then those of a model parallel group,
then the pipeline's stages:

    rank = (pipeline_rank * model_parallel_size + model_rank) * data_parallel_size + data_rank

Each group varies one of the three numbers and keeps the other two. A formula that keeps only one, such as
``(i // dp) % mp == model_rank`` for "the model parallel group", collects the ranks of all data parallel replicas and
all stages: with 2 x 4 x 2 it gives groups of four ranks with the *same* part of the model instead of four different.

``new_group`` is collective over all ranks of the job: every rank must make every group, also those it is not in, in the
same order. If each rank makes only its own, rank 0 waits for others to join a group that they never heard of.
"""

import argparse
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401


@dataclass
class ParallelGroups:
    data_rank: int
    model_rank: int
    pipeline_rank: int
    data: dist.ProcessGroup
    model: dist.ProcessGroup
    pipeline: dist.ProcessGroup


def setup_3d_parallel(data_size: int, model_size: int, pipeline_size: int) -> ParallelGroups:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if data_size * model_size * pipeline_size != world_size:
        raise SystemExit(
            f"{data_size} x {model_size} x {pipeline_size} groups need as many ranks, but there are {world_size}"
        )
    ranks = torch.arange(world_size).view(pipeline_size, model_size, data_size)
    mine: dict[str, dist.ProcessGroup] = {}
    for name, dim in (("pipeline", 0), ("model", 1), ("data", 2)):
        for members in ranks.movedim(dim, -1).reshape(-1, ranks.size(dim)).tolist():
            group = dist.new_group(members)  # by all ranks, members or not
            if rank in members:
                mine[name] = group
    # torch.distributed.device_mesh.init_device_mesh("npu", (pp, mp, dp)) makes the same groups.
    return ParallelGroups(
        data_rank=rank % data_size,
        model_rank=rank // data_size % model_size,
        pipeline_rank=rank // (data_size * model_size),
        **mine,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=int, default=2)
    parser.add_argument("--model", type=int, default=2)
    parser.add_argument("--pipeline", type=int, default=2)
    args = parser.parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="hccl")
    groups = setup_3d_parallel(args.data, args.model, args.pipeline)
    members = {}
    for name in ("data", "model", "pipeline"):
        group = getattr(groups, name)
        mine = torch.tensor([dist.get_rank()], device="npu")
        everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everybody, mine, group=group)  # each group works
        members[name] = torch.cat(everybody).tolist()
    place = f"DP={groups.data_rank}, MP={groups.model_rank}, PP={groups.pipeline_rank}"
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, f"Rank {dist.get_rank()}: {place}, groups {members}")
    if dist.get_rank() == 0:
        print("\n".join(lines), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
