"""What asynchronous operations promise: handles, futures, order, and the release of the interpreter lock."""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist
from ranks import device


def check_future() -> None:
    ranks = dist.get_world_size()
    for operation, expected in ((dist.ReduceOp.SUM, ranks), (dist.ReduceOp.AVG, 1.0)):
        for size in (3, 5000):
            tensor = torch.ones(size, device=device())
            future = dist.all_reduce(tensor, operation, async_op=True).get_future()
            seen = []
            child = future.then(lambda done: seen.append(torch.npu.current_device()) or done.value()[0] * 10)
            (value,) = future.wait()
            assert value.device == device()
            assert value.data_ptr() == tensor.data_ptr()
            assert value.unique().tolist() == [expected]
            assert child.wait().unique().tolist() == [10 * expected]
            assert seen == [device().index]


def test_future_holds_finished_npu_tensors(two_ranks) -> None:
    two_ranks.run(check_future)


def check_handle() -> None:
    rank = dist.get_rank()
    tensor = torch.ones(2, device=device())
    if rank == 1:
        time.sleep(0.3)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        assert not work.is_completed()
        assert not work.get_future().done()
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.get_future().done()
    assert work.get_future_result().wait() == 0
    (output,) = work.result()
    assert output.device == device()
    assert output.tolist() == [2, 2]
    assert work._get_duration() > 0
    work.synchronize()


def test_handle(two_ranks) -> None:
    two_ranks.run(check_handle)


def check_order() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((1 + 700 * number,), float(rank), device=device()) for number in range(12)]
    works = [dist.broadcast(tensor, number % ranks, async_op=True) for number, tensor in enumerate(tensors)]
    works[-1].wait()
    assert all(work.is_completed() for work in works)
    assert [tensor.unique().tolist() for tensor in tensors] == [[number % ranks] for number in range(12)]

    # A synchronous operation behind asynchronous ones comes after them.
    tensor = torch.ones(50_000, device=device())
    for _ in range(3):
        work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert work.is_completed()
    assert tensor.unique().tolist() == [ranks**4]


def test_operations_of_a_group_keep_their_order(three_ranks) -> None:
    three_ranks.run(check_order)


def check_interpreter_lock() -> int:
    """Rank 1 comes late; meanwhile rank 0's other thread must be able to run."""
    count = 0
    stop = threading.Event()

    def counter() -> None:
        nonlocal count
        while not stop.wait(0.01):
            count += 1

    if dist.get_rank() == 1:
        time.sleep(0.5)
    thread = threading.Thread(target=counter)
    thread.start()
    dist.all_reduce(torch.ones(1, device=device()))
    work = dist.all_reduce(torch.ones(1, device=device()), async_op=True)
    work.wait()
    stop.set()
    thread.join()
    return count


def test_waiting_releases_the_interpreter_lock(two_ranks) -> None:
    assert two_ranks.run(check_interpreter_lock)[0] >= 10


def check_wait_with_timeout() -> None:
    from datetime import timedelta

    tensor = torch.ones(1, device=device())
    if dist.get_rank() == 1:
        time.sleep(0.5)
    work = dist.all_reduce(tensor, async_op=True)
    if dist.get_rank() == 0:
        try:
            work.wait(timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            assert "ALLREDUCE" in str(error)
        else:
            raise AssertionError("wait(50 ms) did not give up")
    work.wait()
    assert tensor.item() == 2


def test_wait_may_give_up_without_harm(two_ranks) -> None:
    two_ranks.run(check_wait_with_timeout)


def check_sequence_numbers() -> None:
    group = dist.new_group()
    backend = group._get_backend(device())
    assert backend._get_sequence_number_for_group() == 0
    for _ in range(3):
        dist.all_reduce(torch.ones(1, device=device()), group=group)
    assert backend._get_sequence_number_for_group() == 3
    dist.destroy_process_group(group)


def test_sequence_numbers_count_collectives(two_ranks) -> None:
    two_ranks.run(check_sequence_numbers)


def check_completion_hook() -> None:
    group = dist.new_group()
    seen = []
    group._register_on_completion_hook(lambda info: seen.append((info.op_type, info.seq)))
    for _ in range(2):
        dist.all_reduce(torch.ones(1, device=device()), group=group)
    group._wait_for_pending_works()
    assert [number for _, number in seen] == [1, 2]
    dist.destroy_process_group(group)


def test_completion_hook(two_ranks) -> None:
    two_ranks.run(check_completion_hook)


def check_many_threads() -> None:
    """One group per thread: what the threads of a process do in different groups is independent."""
    groups = [dist.new_group() for _ in range(3)]
    totals = [0.0] * 3

    def reduce(number: int) -> None:
        torch.npu.set_device(device())
        for _ in range(20):
            tensor = torch.full((100,), float(number), device=device())
            dist.all_reduce(tensor, group=groups[number])
            totals[number] += tensor[0].item()

    threads = [threading.Thread(target=reduce, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [20.0 * number * dist.get_world_size() for number in range(3)]
    for group in groups:
        dist.destroy_process_group(group)


def test_groups_in_threads(two_ranks) -> None:
    two_ranks.run(check_many_threads)
