"""Ranks that disagree, come late, die or stop: an error that names the operation, no crash, no hang."""

from __future__ import annotations

import os
import sys
import time

import pytest
import torch
import torch.distributed as dist
from ranks import RankFailure, device, refusal


def ones(*sizes: int, **options) -> torch.Tensor:
    return torch.ones(*sizes, device=device(), **options)


def disagree(case: str) -> str:
    """Does the operation of `case`, which the ranks understand differently; gives the error it ends in.

    A rank that only sends may learn of it with its next operation.
    """
    rank = dist.get_rank()
    peer = 1 - rank
    operation = {
        "size": lambda: dist.all_reduce(ones(2 + rank)),
        "large size": lambda: dist.all_reduce(ones(100_000 + rank)),
        "dtype": lambda: dist.all_reduce(ones(4, dtype=(torch.float32, torch.int32)[rank])),
        "reduction": lambda: dist.all_reduce(ones(4), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank]),
        "collective": lambda: dist.all_reduce(ones(4)) if rank == 0 else dist.all_gather([ones(4), ones(4)], ones(4)),
        "root": lambda: dist.reduce(ones(4), rank),
        "layout": lambda: dist.all_reduce(ones(2, 2, 2, 2).contiguous(memory_format=LAYOUTS[rank])),
        "splits": lambda: dist.all_to_all_single(ones(4), ones(4), [2, 2], [2, 2] if rank == 0 else [1, 3]),
        "transfer size": lambda: dist.send(ones(50_000), peer) if rank == 0 else dist.recv(ones(3), peer),
        "transfer dtype": lambda: dist.send(ones(4), peer) if rank == 0 else dist.recv(ones(4).int(), peer),
        "broadcast root": lambda: dist.broadcast(ones(4), rank),
        "one more": lambda: [dist.all_reduce(ones(4)) for _ in range(2 + rank)],
    }[case]
    return refusal(lambda: (operation(), dist.barrier()), dist.DistBackendError)


LAYOUTS = (torch.contiguous_format, torch.channels_last)
CASES = (
    "size",
    "large size",
    "dtype",
    "reduction",
    "collective",
    "root",
    "layout",
    "splits",
    "transfer size",
    "transfer dtype",
    "broadcast root",
    "one more",
)


def recover() -> float:
    import torch_npu

    assert "rebuild_link=True" in refusal(lambda: torch_npu.distributed.reinit_process_group(rebuild_link=False))
    assert torch_npu.distributed.reinit_process_group() is dist.group.WORLD
    assert torch_npu.distributed.reinit_process_group(rebuild_link=False) is None
    tensor = ones(3)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_disagreement_is_an_error_and_the_group_can_be_rebuilt(new_ranks) -> None:
    ranks = new_ranks(2, timeout=20)
    for case in CASES:
        errors = ranks.run(disagree, case)
        assert any("the ranks do not agree" in text for text in errors), (case, errors)
        for text in errors:
            assert "WorkHCCL(Group=" in text
            assert "SeqNum=" in text
        assert ranks.run(recover) == [2.0, 2.0]


def come_late() -> tuple[str, float, str]:
    if dist.get_rank() == 1:
        time.sleep(4)
    started = time.monotonic()
    first = refusal(lambda: dist.all_reduce(ones(2)), dist.DistBackendError)
    seconds = time.monotonic() - started
    return first, seconds, refusal(lambda: dist.barrier(), dist.DistBackendError)


def test_timeout(new_ranks) -> None:
    (first, seconds, later), (of_late, _, _) = new_ranks(2, timeout=2).run(come_late)
    assert "Watchdog caught collective operation timeout" in first
    assert "OpType=ALLREDUCE" in first
    assert "SeqNum=1" in first
    assert "no answer from rank 1" in first
    assert "ERR02011" in first
    assert 1.9 < seconds < 3.5
    assert "no longer usable" in later
    assert "ALLREDUCE" in of_late


def wait_for_timeouts_of_work() -> None:
    from datetime import timedelta

    if dist.get_rank() == 1:
        time.sleep(3)
        return
    for launch in (
        lambda: dist.irecv(ones(2), 1),
        lambda: dist.all_reduce(ones(2), async_op=True),
    ):
        work = launch()
        future = work.get_future()
        text = refusal(future.wait, dist.DistBackendError)
        assert "Watchdog" in text or "no longer usable" in text
        assert refusal(work.wait, dist.DistBackendError) == text
        assert work.is_completed()
        assert not work.is_success()
        assert work.get_future_result().wait() != 0
        assert refusal(lambda: work.wait(timedelta(seconds=1)), dist.DistBackendError) == text


def test_timeout_reaches_handles_and_futures(new_ranks) -> None:
    new_ranks(2, HCCL_EXEC_TIMEOUT="1").run(wait_for_timeouts_of_work)


def monitored_barrier() -> str:
    from datetime import timedelta

    backend = dist.group.WORLD._get_backend(device())
    backend.monitored_barrier(timeout=timedelta(seconds=10))
    if dist.get_rank() == 2:
        time.sleep(2)
    text = "passed"
    if dist.get_rank() != 1:
        text = refusal(lambda: backend.monitored_barrier(timeout=timedelta(seconds=1)), dist.DistBackendError)
    dist.barrier()  # the group is still usable
    return text


def test_monitored_barrier_names_the_missing_rank(new_ranks) -> None:
    texts = new_ranks(3).run(monitored_barrier)
    assert "no sign from rank 1." in texts[0]


def lose_a_peer(how: str) -> None:
    dist.all_reduce(ones(2))
    if dist.get_rank() == 1:
        if how == "killed":
            os.kill(os.getpid(), 9)
        if how == "ended":
            os._exit(3)
        sys.exit(4)  # through the interpreter's shutdown, which tells the peer
    started = time.monotonic()
    text = refusal(lambda: [dist.all_reduce(ones(2)) for _ in range(3)], dist.DistBackendError)
    assert "ALLREDUCE" in text
    assert "rank 1" in text
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("how", "code"), [("killed", -9), ("ended", 3), ("shut down", 4)])
def test_a_lost_peer_is_noticed_at_once(new_ranks, how, code) -> None:
    with pytest.raises(RankFailure) as failure:
        new_ranks(2).run(lose_a_peer, how)
    assert str(failure.value) == f"rank 1 ended with exit code {code}"


def abort_pending() -> float:
    backend = dist.group.WORLD._get_backend(device())
    if dist.get_rank() == 1:
        time.sleep(1.5)
        text = refusal(lambda: dist.all_reduce(ones(2)), dist.DistBackendError)
        return 0.0 if "connection" in text or "failed" in text else 99.0
    collective, receive = dist.all_reduce(ones(2), async_op=True), dist.irecv(ones(2), 1)
    time.sleep(0.2)
    started = time.monotonic()
    backend.abort()
    for work in (collective, receive):
        assert "aborted" in refusal(work.wait, dist.DistBackendError)
    return time.monotonic() - started


def test_abort_frees_what_waits(new_ranks) -> None:
    assert max(new_ranks(2).run(abort_pending)) < 1


def leave_without_destroying() -> None:
    """Pending operations, a large last message, and a group that nobody destroys."""
    global kept
    kept = [dist.new_group()]
    tensor = torch.full((1 << 20,), float(dist.get_rank()), device=device())
    dist.broadcast(tensor, 0)
    assert tensor.sum().item() == 0
    if dist.get_rank() == 0:
        kept.append(dist.irecv(ones(2), 1))
        kept.append(dist.all_reduce(ones(2), async_op=True, group=kept[0]))


def skip_destroying() -> None:
    dist.destroy_process_group = lambda: None


def test_leaving_without_destroying_is_clean(new_ranks) -> None:
    ranks = new_ranks(2)
    ranks.run(skip_destroying)
    ranks.run(leave_without_destroying)
    assert ranks.exit_codes() == [0, 0]


def destroy_in_another_order() -> None:
    first, second = dist.new_group(), dist.new_group()
    for group in (first, second):
        dist.all_reduce(ones(2), group=group)
    work = dist.all_reduce(ones(2), group=first, async_op=True)
    for group in (first, second):
        dist.destroy_process_group(group)
    assert work.is_completed()
    assert work.is_success()
    dist.all_reduce(ones(2))
    dist.destroy_process_group()
    assert "not been initialized" in refusal(lambda: dist.all_reduce(ones(2)), ValueError)
    dist.destroy_process_group = lambda: None


def test_destroy(new_ranks) -> None:
    ranks = new_ranks(2)
    ranks.run(destroy_in_another_order)
    assert ranks.exit_codes() == [0, 0]


def destroy_with_callbacks() -> list[float]:
    """The group is destroyed while Python callbacks wait for operations that a late peer holds up."""
    group = dist.new_group()
    seen = []
    if dist.get_rank() == 1:
        time.sleep(0.5)
    future = dist.all_reduce(ones(2), group=group, async_op=True).get_future()
    future.add_done_callback(lambda done: seen.append(done.value()[0].sum().item()))
    dist.destroy_process_group(group)
    return seen


def drop_with_callbacks() -> list[float]:
    """As above, but the last reference to the group's backend dies in the callback itself."""
    from torch_npu._C._distributed_c10d import ProcessGroupHCCL

    seen = []
    holder = []
    store = dist.PrefixStore("dropped", dist.group.WORLD.get_group_store())
    holder.append(ProcessGroupHCCL(store, dist.get_rank(), dist.get_world_size()))
    tensor = ones(2)
    if dist.get_rank() == 1:
        time.sleep(0.5)
    future = holder[0].allreduce([tensor]).get_future()
    future.add_done_callback(lambda done: (holder.clear(), seen.append(done.value()[0].sum().item())))
    while not seen:
        time.sleep(0.01)
    return seen


def test_destroy_with_callbacks_pending(new_ranks) -> None:
    ranks = new_ranks(2)
    assert ranks.run(destroy_with_callbacks, seconds=20) == [[4.0], [4.0]]
    assert ranks.run(drop_with_callbacks, seconds=20) == [[4.0], [4.0]]
    assert ranks.exit_codes() == [0, 0]
