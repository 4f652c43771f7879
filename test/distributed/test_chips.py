"""What HCCL can reduce depends on the chip: float64 and uint64 from the Ascend910_95 on."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import device


def reduce_wide_types() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for count in (5, 40_001):
        # A sum that float32 could not hold.
        tensor = torch.full((count,), 1.0 + rank * 2.0**-40, dtype=torch.float64, device=device())
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [ranks + sum(range(ranks)) * 2.0**-40]
        for operation, expected in ((dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.MAX, 2.0), (dist.ReduceOp.PRODUCT, 2.0)):
            tensor = torch.full((count,), 1.0 + rank, dtype=torch.float64, device=device())
            dist.all_reduce(tensor, operation)
            assert tensor.unique().tolist() == [expected]
        tensor = torch.full((count,), 1.0 if rank == 0 else float("nan"), dtype=torch.float64, device=device())
        dist.all_reduce(tensor, dist.ReduceOp.MIN)
        assert tensor.isnan().all()
        large = torch.full((count,), 2**63 + rank, dtype=torch.uint64)
        moved = large.to(device())
        dist.all_reduce(moved, dist.ReduceOp.MAX)
        assert (moved.cpu() == 2**63 + ranks - 1).all()


def test_float64_and_uint64_are_reduced_on_ascend910_95(new_ranks) -> None:
    new_ranks(2, TORCH_CANN_SOC="Ascend910_95").run(reduce_wide_types)
