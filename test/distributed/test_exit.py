"""Processes that end: with work in flight and groups that nobody destroyed, and those that have not seen an error."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Each of the two ranks of a script of its own, so that it ends as scripts do, through the interpreter's exit.
_HEADER = """
import os, time, torch, torch_npu
import torch.distributed as dist
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
def ones(count):
    return torch.ones(count, device="npu")
"""


def run_ranks(tmp_path, body: str, **environment: str) -> list[tuple[int, str]]:
    """Exit code and output of each of two ranks that run `body`."""
    script = tmp_path / "script.py"
    init = f'dist.init_process_group("hccl", init_method="file://{tmp_path}/store", rank=rank, world_size=2)\n'
    script.write_text(_HEADER + init + textwrap.dedent(body), encoding="utf-8")
    (tmp_path / "store").unlink(missing_ok=True)
    base = dict(os.environ, OMP_NUM_THREADS="1", LOCAL_WORLD_SIZE="2", **environment)
    processes = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=dict(base, RANK=str(rank)),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    results = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        results.append((process.returncode, output))
    return results


IN_FLIGHT = """
other = dist.new_group()
dist.all_reduce(ones(1 << 20))
seen = []
works = [dist.all_reduce(ones(1000), async_op=True, group=other) for _ in range(5 if rank == 0 else 3)]
if rank == 0:
    works.append(dist.irecv(ones(2), 1))
    kept = works[-2].get_future().then(lambda done: seen.append(done.value()))
dist.barrier()
"""


@pytest.mark.parametrize("attempt", range(3))
def test_exit_with_work_in_flight_is_clean(tmp_path, attempt: int) -> None:
    for code, output in run_ranks(tmp_path, IN_FLIGHT):
        assert code == 0, output
        assert "terminate" not in output


UNSEEN = """
dist.all_reduce(ones(4))
work = dist.all_reduce(ones(4 + rank), async_op=True)
time.sleep(12)
print("still here")
"""


def test_an_error_that_nobody_sees_ends_the_process_if_asked_for(tmp_path) -> None:
    for code, output in run_ranks(tmp_path, UNSEEN, TORCH_HCCL_ASYNC_ERROR_HANDLING="1"):
        assert code == -6, output
        assert "the ranks do not agree" in output
        assert "TORCH_HCCL_ASYNC_ERROR_HANDLING" in output
        assert "still here" not in output


SEEN = """
dist.all_reduce(ones(4))
work = dist.all_reduce(ones(4 + rank), async_op=True)
try:
    work.wait()
except dist.DistBackendError as error:
    print("caught")
time.sleep(7)
print("still here")
"""


def test_an_error_that_the_script_handles_does_not(tmp_path) -> None:
    for code, output in run_ranks(tmp_path, SEEN, HCCL_ASYNC_ERROR_HANDLING="1"):
        assert code == 0, output
        assert "caught\nstill here" in output
        assert "older name of TORCH_HCCL_ASYNC_ERROR_HANDLING" in output


def test_a_malformed_variable_is_refused_by_name(tmp_path) -> None:
    for code, output in run_ranks(tmp_path, "", HCCL_ALGO="level0:NA;level1:star"):
        assert code == 1
        assert 'ValueError: HCCL_ALGO="level0:NA;level1:star" is not valid: expected ring, H-D_R' in output
