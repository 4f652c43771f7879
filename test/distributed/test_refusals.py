"""What hccl refuses: the right error, the right words, before anything is sent, so that the group stays usable."""

from __future__ import annotations

import re

import torch
import torch.distributed as dist
from ranks import device, refusal

_SUFFIX = re.compile(r"\[ERROR\] [0-9\-:]* \(PID:\d*, Device:-?\d*, RankID:-?\d*\) ERR02\d{3} DIST ")


def ones(*sizes: int, **options) -> torch.Tensor:
    return torch.ones(*sizes, device=device(), **options)


def refused(function, *words: str) -> None:
    text = refusal(function)
    assert all(word in text for word in words), text
    assert _SUFFIX.search(text), text


def check_reductions() -> None:
    for name in ("BAND", "BOR", "BXOR"):
        operation = getattr(dist.ReduceOp, name)
        refused(lambda: dist.all_reduce(ones(2, dtype=torch.int32), operation), f"Cannot use ReduceOp.{name} with HCCL")
    double = ones(2, dtype=torch.float64)
    refused(lambda: dist.all_reduce(double), "HCCL allreduce: Unsupported data type at::kDouble")
    refused(lambda: dist.reduce(double, 0), "HCCL reduce: Unsupported data type at::kDouble")
    refused(
        lambda: dist.reduce_scatter_tensor(ones(1, dtype=torch.float64), double),
        "HCCL _reduce_scatter_base: Unsupported data type at::kDouble",
    )
    refused(lambda: dist.all_reduce(ones(2, dtype=torch.bool), dist.ReduceOp.AVG), "AVG", "at::kBool")
    refused(
        lambda: dist.all_reduce(ones(2, dtype=torch.int32), dist._make_nccl_premul_sum(2.0)), "PREMUL_SUM", "at::kInt"
    )
    dist.barrier()


def test_reductions(two_ranks) -> None:
    two_ranks.run(check_reductions)


def check_tensors() -> None:
    from torch.distributed.distributed_c10d import AllreduceOptions, BroadcastOptions

    backend = dist.group.WORLD._get_backend(device())
    assert "cpu" in refusal(lambda: dist.all_reduce(torch.ones(2)))
    refused(lambda: backend.allreduce([torch.ones(2)], AllreduceOptions()), "Tensors must be NPU and dense", "cpu")
    refused(lambda: dist.all_reduce(ones(2, 3).t()), "Tensors must be contiguous", "[3, 2]")
    refused(lambda: backend.allreduce([ones(2), ones(2)], AllreduceOptions()), "exactly one tensor")
    refused(lambda: backend.broadcast([], BroadcastOptions()), "exactly one tensor")
    conjugate = ones(2, dtype=torch.complex64).conj()
    refused(lambda: backend.broadcast([conjugate], BroadcastOptions()), "lazy conjugate")
    indices = torch.zeros(1, 1, dtype=torch.int64)
    sparse = torch.sparse_coo_tensor(indices, torch.ones(1), (3,)).to(device())
    refused(lambda: backend.broadcast([sparse], BroadcastOptions()), "Tensors must be NPU and dense", "Sparse")
    refused(lambda: dist.all_reduce(sparse), "Tensors must be NPU and dense", "to_dense()")
    elsewhere = torch.ones(2, device=torch.device("npu", device().index + 2))
    refused(lambda: dist.all_gather([ones(2), ones(2)], elsewhere), "same NPU device", str(device()))
    dist.barrier()


def test_tensors(two_ranks) -> None:
    two_ranks.run(check_tensors)


def check_sizes() -> None:
    rank = dist.get_rank()
    refused(
        lambda: dist.all_gather_into_tensor(ones(5), ones(2)),
        "output tensor size must be equal to world_size times input tensor size",
    )
    refused(
        lambda: dist.reduce_scatter_tensor(ones(2), ones(5)),
        "input tensor must be the same size as output size times world size",
    )
    refused(
        lambda: dist.all_gather([ones(3), ones(3)], ones(2)),
        "output tensor must have the same numel as input tensor",
    )
    refused(lambda: dist.all_gather([ones(2)], ones(2)), "one tensor per rank")
    refused(
        lambda: dist.all_to_all_single(ones(4), ones(4), [1, 2], [2, 2]),
        "Split sizes doesn't match total dim 0 size",
    )
    refused(lambda: dist.all_to_all_single(ones(4), ones(4), [5, -1], [2, 2]), "negative")
    refused(lambda: dist.all_to_all_single(ones(3), ones(3)), "divide equally")
    if rank == 0:
        refused(lambda: dist.gather(ones(2), [ones(2), ones(3)], 0), "same numel")
        refused(lambda: dist.scatter(ones(2), [ones(2), ones(3)], 0), "same numel")
    backend = dist.group.WORLD._get_backend(device())
    refused(lambda: backend.send([ones(2)], 2, 0), "Invalid destination rank 2")
    refused(lambda: backend.send([ones(2)], rank, 0), "cannot send to itself")
    refused(lambda: backend.recv([ones(2)], -1, 0), "Invalid source rank -1")
    refused(lambda: backend.send([ones(2)], 1 - rank, -1), "Tags must not be negative")
    refused(lambda: backend.batch_isend_irecv(["send"], [ones(2)], [1 - rank]), "isend", '"send"')
    refused(lambda: backend._group_end(), "without startCoalescing")
    dist.barrier()


def test_sizes_and_ranks(two_ranks) -> None:
    two_ranks.run(check_sizes)


def check_dtypes() -> None:
    from torch.distributed.distributed_c10d import AllToAllOptions, ReduceScatterOptions

    backend = dist.group.WORLD._get_backend(device())
    long = ones(4, dtype=torch.int64)
    refused(lambda: backend.alltoall_base(ones(4), long, [], [], AllToAllOptions()), "identical type", "Long")
    refused(lambda: backend._reduce_scatter_base(ones(2), long, ReduceScatterOptions()), "identical type")
    dist.barrier()


def test_dtypes(two_ranks) -> None:
    two_ranks.run(check_dtypes)


def check_options() -> None:
    from torch_npu._C._distributed_c10d import ProcessGroupHCCL

    options = ProcessGroupHCCL.Options()
    for config, words in (
        ({"hccl_buffer_size": "200"}, "Value type of hccl_buffer_size should be int."),
        ({"group_name": 3}, "Value type of group_name should be string."),
        ({"hccl_buffer_size": 1.5}, "Value type of hccl_buffer_size should be int."),
        ({"hccl_buffer_size": True}, "Value type of hccl_buffer_size should be int."),
    ):
        try:
            options.hccl_config = config
        except RuntimeError as error:
            assert words in str(error)
            assert "ERR02002" in str(error)
        else:
            raise AssertionError(f"{config} was accepted")
    text = refusal(lambda: setattr(options, "hccl_config", {"hccl_buffer_size": 0}), ValueError)
    assert "positive" in text
    assert options.hccl_config == {}
    text = refusal(lambda: dist.new_group(pg_options=object()), TypeError)
    assert "ProcessGroupHCCL.Options" in text


def test_options(two_ranks) -> None:
    two_ranks.run(check_options)
