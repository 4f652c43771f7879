"""Ranks of one host share memory: peers that die or stop in the middle, Ctrl-C, what is left behind, who may look."""

from __future__ import annotations

import json
import os
import signal
import stat
import time

import pytest
import torch
import torch.distributed as dist
from ranks import RankFailure, device, refusal


def ones(*sizes: int, **options) -> torch.Tensor:
    return torch.ones(*sizes, device=device(), **options)


def reduce_until_it_fails() -> tuple[str, float]:
    """The error that ends an endless row of large collectives, and the seconds since the peer's last sign of life."""
    tensor = ones(1 << 20)
    alive = time.monotonic()

    def forever() -> None:
        nonlocal alive
        while True:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
            alive = time.monotonic()

    text = refusal(forever, dist.DistBackendError)
    return text, time.monotonic() - alive


def die_in_the_middle() -> tuple[str, float] | None:
    if dist.get_rank() == 2:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    text, seconds = reduce_until_it_fails()
    assert "rank 2" in text
    assert "has ended" in text or "gave up" in text
    assert "SeqNum=" in text
    assert seconds < 2
    assert "ALLREDUCE" in text
    return text, seconds


def test_a_peer_killed_in_the_middle_is_noticed_within_two_seconds(new_ranks) -> None:
    with pytest.raises(RankFailure) as failure:
        new_ranks(3).run(die_in_the_middle)
    assert str(failure.value) == "rank 2 ended with exit code -9"


def wait_for_a_stopped_peer() -> tuple[str, float]:
    peer = [None, None]
    dist.all_gather_object(peer, os.getpid())
    if dist.get_rank() == 1:
        try:
            dist.all_reduce(ones(4))  # stopped before or in here, and continued when the other has given up
        except dist.DistBackendError as error:
            return str(error), 0.0
        return "", 0.0
    os.kill(peer[1], signal.SIGSTOP)
    started = time.monotonic()
    text = refusal(lambda: [dist.all_reduce(ones(4)) for _ in range(2)], dist.DistBackendError)
    seconds = time.monotonic() - started
    os.kill(peer[1], signal.SIGCONT)
    return text, seconds


def test_a_stopped_peer_is_named_at_the_timeout(new_ranks) -> None:
    (text, seconds), _ = new_ranks(2, timeout=2).run(wait_for_a_stopped_peer)
    assert "no answer from rank 1" in text
    assert "is stopped" in text
    assert 1.9 < seconds < 4


def be_interrupted(how: str) -> float:
    if dist.get_rank() == 1:
        time.sleep(3)
        return 0.0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    started = time.monotonic()
    operations = {
        "collective": lambda: dist.all_reduce(ones(4)),
        "wait": lambda: dist.all_reduce(ones(4), async_op=True).wait(),
        "receive": lambda: dist.recv(ones(4), 1),
    }
    refusal(operations[how], KeyboardInterrupt)
    return time.monotonic() - started


@pytest.mark.parametrize("how", ["collective", "wait", "receive"])
def test_ctrl_c_ends_a_wait(new_ranks, how) -> None:
    seconds, _ = new_ranks(2, timeout=20).run(be_interrupted, how)
    assert 0.4 < seconds < 2


def leave_a_record() -> str:
    tensor = ones(4)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    if dist.get_rank() == 1:
        time.sleep(2)
    return refusal(lambda: dist.all_reduce(tensor), dist.DistBackendError)


def test_a_failure_leaves_a_flight_record(new_ranks, tmp_path) -> None:
    prefix = str(tmp_path / "record_")
    ranks = new_ranks(2, timeout=1, TORCH_HCCL_TRACE_BUFFER_SIZE="2", TORCH_HCCL_DEBUG_INFO_TEMP_FILE=prefix)
    ranks.run(leave_a_record)
    entries = json.loads((tmp_path / "record_0").read_text())["entries"]
    assert [(entry["profiling_name"], entry["state"]) for entry in entries] == [
        ("hccl:broadcast", "completed"),
        ("hccl:all_reduce", "failed"),
    ]
    assert entries[1]["collective_seq_id"] == 3
    assert entries[1]["bytes"] == 16
    assert "no answer from rank 1" in entries[1]["failure"]


def shared_files() -> list[tuple[str, int, int]]:
    """Memory files of this process: name, mode, owner."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
            status = os.stat(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if "torch_cann" in name:
            found.append((name, stat.S_IMODE(status.st_mode), status.st_uid))
    return found


def test_shared_memory_has_no_name_and_belongs_to_its_user(two_ranks) -> None:
    before = set(os.listdir("/dev/shm"))
    for files in two_ranks.run(shared_files):
        assert files
        for name, mode, owner in files:
            assert name.startswith("/memfd:")
            assert name.endswith("(deleted)")
            assert mode == 0o600
            assert owner == os.geteuid()
    assert set(os.listdir("/dev/shm")) <= before


def shared_memory_in_use() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))


def fill_hbm() -> None:
    global kept
    kept = torch.ones(64 << 20, device=device())  # 256 MiB
    dist.all_reduce(kept, dist.ReduceOp.MAX)


def test_nothing_is_left_after_kill_9_of_all(new_ranks) -> None:
    before = shared_memory_in_use()
    ranks = new_ranks(2)
    ranks.run(fill_hbm)
    assert shared_memory_in_use() > before + 400 * 1024
    ranks.kill()
    deadline = time.monotonic() + 5
    while shared_memory_in_use() > before + 100 * 1024 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert shared_memory_in_use() <= before + 100 * 1024


def exchange_between_places() -> None:
    """Tensors in and outside of shared HBM give the same results."""
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    for size in (5, 5000, 3_000_000):
        tensor = torch.full((size,), float(rank + 1), device=device())
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [3.0]
        both = torch.empty(2 * size, device=device())
        dist.all_gather_into_tensor(both, tensor * (rank + 1))
        assert both[:size].unique().tolist() == [3.0]
        assert both[size:].unique().tolist() == [6.0]
        mine = torch.empty(size, device=device())
        dist.reduce_scatter_tensor(mine, both)
        assert mine.unique().tolist() == [6.0 * (rank + 1)]
        received = torch.empty(size, device=device())
        works = [dist.isend(tensor + rank, peer), dist.irecv(received, peer)]
        for work in works:
            work.wait()
        assert received.unique().tolist() == [3.0 + peer]


@pytest.mark.parametrize("sharing", ["0", "1"])
def test_hbm_that_is_not_shared_is_copied(new_ranks, sharing) -> None:
    ranks = new_ranks(2, TORCH_CANN_SHARED_HBM=sharing)
    ranks.run(exchange_between_places)
    assert any("hbm" in name for name, _, _ in ranks.run(shared_files)[0]) == (sharing == "1")
