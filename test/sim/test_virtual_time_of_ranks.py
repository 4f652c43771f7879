"""Real ranks on the simulated clock: they wait for each other in virtual time."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_BODY = """
    import json, os, sys, torch, torch_npu, torch.distributed as dist
    dist.init_process_group("hccl")
    rank = dist.get_rank()
    torch.npu.set_device(rank)
    a, x = torch.ones(512, 512, device="npu"), torch.ones(1024, device="npu")
    def timed(body):
        start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        start.record(); body(); end.record()
        return start.elapsed_time(end) * 1e3
    def compute():
        if rank == 1:
            for _ in range(30): a @ a
    def overlapped():
        work = dist.all_reduce(x, async_op=True)
        for _ in range(50): a @ a
        work.wait()
    def sent():
        compute()
        dist.send(x, 0) if rank == 1 else dist.recv(x, 1)
    dist.all_reduce(x)
    out = {"alone": timed(lambda: dist.all_reduce(x))}
    out["compute"] = timed(compute)
    dist.barrier()
    out["late"] = timed(lambda: (compute(), dist.all_reduce(x)))
    dist.barrier()
    out["work"] = timed(lambda: [a @ a for _ in range(50)])
    dist.barrier()
    out["overlapped"] = timed(overlapped)
    dist.barrier()
    out["sent"] = timed(sent)
    open(f"{rank}.json", "w").write(json.dumps(out))
    dist.destroy_process_group()
    """


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """Microseconds of each rank of two, by what was done."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    (folder / "body.py").write_text(textwrap.dedent(_BODY))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "body.py"]
    environment = os.environ | {"TORCH_CANN_SIMULATE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launcher, cwd=folder, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_a_collective_waits_for_its_last_rank(times: list[dict[str, float]]) -> None:
    """Rank 1 computes first; rank 0 has nothing to do, and its event shows how long it waited."""
    assert times[0]["compute"] == 0
    assert times[0]["late"] == pytest.approx(times[1]["late"])
    assert times[0]["late"] == pytest.approx(times[1]["compute"] + times[0]["alone"], rel=0.2)


def test_a_collective_takes_what_the_links_take(times: list[dict[str, float]]) -> None:
    """4 KiB between two cards of a server: 10 us to start, and next to nothing to move."""
    assert times[0]["alone"] == times[1]["alone"]
    assert 10 < times[0]["alone"] < 40


def test_computing_hides_communication(times: list[dict[str, float]]) -> None:
    assert times[0]["overlapped"] < times[0]["work"] + times[0]["alone"]


def test_a_receive_waits_for_its_sender(times: list[dict[str, float]]) -> None:
    assert times[0]["sent"] > times[1]["compute"]
