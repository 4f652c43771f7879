"""Ranks in two network namespaces are two hosts: messages over a link instead of shared memory, and the link cut."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta

import namespaces
import pytest
import torch
import torch.distributed as dist
from namespaces import INTERFACE
from ranks import device, refusal


@pytest.fixture
def two_hosts():
    """Names of two network namespaces joined by a link, whose ends are called INTERFACE."""
    try:
        with namespaces.two_namespaces() as names:
            yield names
    except namespaces.NotAllowed as reason:
        pytest.skip(str(reason))


def enter(names: list[str], store: str, timeout: float, first_host: int | None = None) -> None:
    """The first `first_host` ranks (by default half of them) go to the first namespace, the others to the second, and
    all make the default group; file stores work across."""
    rank = torch.npu.current_device()
    ranks = 2 * int(os.environ["LOCAL_WORLD_SIZE"])
    namespaces.enter(names[rank >= (ranks // 2 if first_host is None else first_host)])
    dist.init_process_group(
        "hccl", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
    )


def check_operations() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in (1, 1000, 300_001):
        tensor = torch.full((size,), float(rank + 1), device=device())
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [ranks * (ranks + 1) / 2]
        gathered = torch.empty(ranks * size, device=device())
        dist.all_gather_into_tensor(gathered, torch.full((size,), float(rank), device=device()))
        assert gathered.view(ranks, size)[:, -1].tolist() == list(range(ranks))
        part = torch.empty(size, device=device())
        dist.reduce_scatter_tensor(part, gathered)
        assert part.unique().tolist() == [float(rank * ranks)]
        dist.broadcast(tensor.fill_(rank), ranks - 1)
        assert tensor.unique().tolist() == [ranks - 1]
        dist.reduce(tensor.fill_(rank + 1.0), ranks - 1)
        assert tensor.unique().tolist() == [ranks * (ranks + 1) / 2 if rank == ranks - 1 else rank + 1]
        lists = [torch.empty(size, device=device()) for _ in range(ranks)] if rank == 1 else None
        dist.gather(torch.full((size,), float(rank), device=device()), lists, 1)
        assert [one[-1].item() for one in lists or []] == (list(range(ranks)) if rank == 1 else [])
        dist.scatter(part, lists, 1)
        assert part.unique().tolist() == [rank]
        part.fill_(rank * ranks)
        swapped = torch.empty_like(gathered)
        dist.all_to_all_single(swapped, torch.full_like(gathered, float(rank)))
        assert swapped.view(ranks, size)[:, -1].tolist() == list(range(ranks))
        if rank in (0, ranks - 1):
            other = ranks - 1 - rank
            received = torch.empty(size, device=device())
            for work in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, part, other), dist.P2POp(dist.irecv, received, other)]
            ):
                work.wait()
            assert received.unique().tolist() == [float(other * ranks)]
        dist.barrier()


def check_groups_within_a_host() -> None:
    local = dist.new_group([0, 1]), dist.new_group([2, 3])
    total = torch.ones(5000, device=device())
    dist.all_reduce(total, group=local[dist.get_rank() // 2])
    assert total.unique().tolist() == [2.0]


def test_all_operations_between_two_hosts(new_ranks, two_hosts, tmp_path) -> None:
    ranks = new_ranks(4, backend=None, LOCAL_WORLD_SIZE="2", GLOO_SOCKET_IFNAME=INTERFACE)
    ranks.run(enter, two_hosts, str(tmp_path / "store"), 60.0)
    ranks.run(check_operations)
    ranks.run(check_groups_within_a_host)


def test_all_operations_between_hosts_of_unequal_size(new_ranks, two_hosts, tmp_path) -> None:
    ranks = new_ranks(4, backend=None, LOCAL_WORLD_SIZE="2", GLOO_SOCKET_IFNAME=INTERFACE)
    ranks.run(enter, two_hosts, str(tmp_path / "store"), 60.0, 3)
    ranks.run(check_operations)
    ranks.run(check_algorithms_agree)


def check_algorithms_agree() -> None:
    """Whatever the algorithm: right for several reductions, dtypes and sizes."""
    ranks = dist.get_world_size()
    for size in (1, 50_000, 3_000_000):
        for dtype in (torch.float32, torch.int64):
            tensor = torch.arange(size, device=device(), dtype=dtype) % 100
            for operation, factor in ((dist.ReduceOp.SUM, ranks), (dist.ReduceOp.AVG, 1), (dist.ReduceOp.MAX, 1)):
                result = tensor.clone()
                dist.all_reduce(result, operation)
                assert torch.equal(result, tensor * factor), (size, dtype, operation)


def check_compression() -> None:
    """A lossy group beside the exact default one: near the sum, equal on all ranks, and right over many steps."""
    from torch_npu._C._distributed_c10d import ProcessGroupHCCL

    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor = torch.sin(torch.arange(500_001, device=device()) * (rank + 1.0))
    exact = tensor.clone()
    dist.all_reduce(exact)
    for wire, error in (("fp16", 2e-3), ("bf16", 2e-2), ("int8", 3e-2)):
        options = ProcessGroupHCCL.Options()
        options.wire = wire
        assert options.wire == wire
        group = dist.new_group(pg_options=options)
        result = tensor.clone()
        dist.all_reduce(result, group=group)
        assert 0 < (result - exact).abs().max().item() < error, wire
        others = [torch.empty_like(result) for _ in range(ranks)]
        dist.all_gather(others, result)
        assert all(torch.equal(other, result) for other in others)
        whole = torch.ones(100_000, device=device(), dtype=torch.int32)  # what is no float32 stays exact
        dist.all_reduce(whole, group=group)
        assert whole.unique().tolist() == [ranks]
        dist.destroy_process_group(group)
    assert "topk:FRACTION" in refusal(lambda: setattr(ProcessGroupHCCL.Options(), "wire", "fp8"), ValueError)


def test_algorithms_and_compression_between_two_hosts(new_ranks, two_hosts, tmp_path) -> None:
    ranks = new_ranks(
        4, backend=None, LOCAL_WORLD_SIZE="2", HCCL_SOCKET_IFNAME=INTERFACE, HCCL_ALGO="level0:NA;level1:ring"
    )
    ranks.run(enter, two_hosts, str(tmp_path / "store"), 60.0)
    ranks.run(check_operations)
    ranks.run(check_algorithms_agree)
    ranks.run(check_compression)


def disagree_between_hosts() -> list[str]:
    """Roots and sizes that differ, of small tensors and of large ones, on one host or between the two."""
    import torch_npu

    rank = dist.get_rank()
    errors = []
    for size in (10, 100_000):
        for operation in (
            lambda: dist.broadcast(torch.ones(size, device=device()), rank % 2),
            lambda: dist.broadcast(torch.ones(size, device=device()), rank // 2),
            lambda: dist.reduce(torch.ones(size, device=device()), rank // 2),
            lambda: dist.all_reduce(torch.ones(size * (1 + rank // 2), device=device())),
            lambda: dist.all_reduce(torch.ones(10 if rank == 3 else size + 1, device=device())),
        ):
            errors.append(refusal(operation, dist.DistBackendError))
            torch_npu.distributed.reinit_process_group()
    dist.barrier()
    return errors


def test_ranks_of_two_hosts_that_disagree_are_told_how(new_ranks, two_hosts, tmp_path) -> None:
    ranks = new_ranks(4, backend=None, LOCAL_WORLD_SIZE="2", GLOO_SOCKET_IFNAME=INTERFACE)
    ranks.run(enter, two_hosts, str(tmp_path / "store"), 20.0)
    for errors in zip(*ranks.run(disagree_between_hosts), strict=True):
        assert any("the ranks do not agree" in text for text in errors), errors
        assert not any("Watchdog" in text for text in errors), errors


def reduce_over_a_cut_link() -> tuple[str, float]:
    dist.all_reduce(torch.ones(4, device=device()))
    time.sleep(1)  # the link is cut meanwhile
    started = time.monotonic()
    text = refusal(lambda: dist.all_reduce(torch.ones(4, device=device())), dist.DistBackendError)
    return text, time.monotonic() - started


def test_a_cut_link_is_an_error_at_the_timeout(new_ranks, two_hosts, tmp_path) -> None:
    ranks = new_ranks(2, backend=None, LOCAL_WORLD_SIZE="1", GLOO_SOCKET_IFNAME=INTERFACE)
    ranks.run(enter, two_hosts, str(tmp_path / "store"), 4.0)
    threading.Timer(0.5, namespaces.ip, ("-n", two_hosts[0], "link", "set", INTERFACE, "down")).start()
    for rank, (text, seconds) in enumerate(ranks.run(reduce_over_a_cut_link)):
        assert f"rank {1 - rank}" in text
        assert "OpType=ALLREDUCE" in text
        assert seconds < 6
