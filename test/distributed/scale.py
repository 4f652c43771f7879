"""Many ranks on few cores: how long they take to find each other, to run every collective, and to leave.

    python test/distributed/scale.py --ranks 64

The ranks are forked from a process that has imported torch, so that the times are those of the process group and not of
imports. Each rank has a card of its own and checks every result. Prints seconds, and ends with 1 if a rank failed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("TORCH_CANN_DEVICE_COUNT", "64")
os.environ.setdefault("TORCH_CANN_HBM_MB", "2048")
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_npu  # noqa: E402, F401


def check_collectives(rank: int, ranks: int, count: int) -> None:
    """Every collective with `count` float32 values for each rank."""
    device = torch.device("npu", rank)

    def full(value: float, times: int = 1) -> torch.Tensor:
        return torch.full((times * count,), float(value), device=device)

    def expect(tensor: torch.Tensor, *values: float) -> None:
        assert tensor.view(len(values), -1).float().mean(1).tolist() == [float(value) for value in values]

    everybody = range(ranks)
    total = ranks * (ranks - 1) / 2
    tensor = full(rank)
    dist.all_reduce(tensor)
    expect(tensor, total)
    tensor = full(rank)
    dist.reduce(tensor, ranks - 1)
    expect(tensor, total if rank == ranks - 1 else rank)
    tensor = full(rank)
    dist.broadcast(tensor, 1)
    expect(tensor, 1)
    gathered = full(0, ranks)
    dist.all_gather_into_tensor(gathered, full(rank))
    expect(gathered, *everybody)
    part = full(0)
    dist.reduce_scatter_tensor(part, gathered)
    expect(part, ranks * rank)
    swapped = torch.empty_like(gathered)
    dist.all_to_all_single(swapped, full(rank, ranks))
    expect(swapped, *everybody)
    lists = [full(0) for _ in everybody] if rank == 0 else None
    dist.gather(full(rank), lists, 0)
    for source, one in enumerate(lists or []):
        expect(one, source)
    dist.scatter(part, [full(7 * target) for target in everybody] if rank == 2 else None, 2)
    expect(part, 7 * rank)
    received = full(0)
    ring = [
        dist.P2POp(dist.isend, full(rank), (rank + 1) % ranks),
        dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    expect(received, (rank - 1) % ranks)
    dist.barrier()


def run_rank(rank: int, ranks: int, port: int, times: Path) -> None:
    torch.npu.set_device(rank)
    started = time.monotonic()
    dist.init_process_group(
        "hccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=timedelta(seconds=300)
    )
    dist.barrier()
    connected = time.monotonic()
    for count in (1, 20_000):
        check_collectives(rank, ranks, count)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert [one["rank"] for one in objects] == list(range(ranks))
    worked = time.monotonic()
    dist.destroy_process_group()
    seconds = {"connect": connected - started, "work": worked - connected, "leave": time.monotonic() - worked}
    (times / str(rank)).write_text(json.dumps(seconds), encoding="utf-8")


def fork_rank(rank: int, ranks: int, port: int, times: Path) -> int:
    """The process id of a rank."""
    if (child := os.fork()) > 0:
        return child
    code = 1
    try:
        run_rank(rank, ranks, port, times)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64, help="1 to 64 (default: %(default)s)")
    ranks = parser.parse_args().ranks
    warnings.simplefilter("ignore")  # of torch, once for each rank
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"] = str(ranks)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder)
        children = [fork_rank(rank, ranks, port, times) for rank in range(ranks)]
        failed = [rank for rank, child in enumerate(children) if os.waitpid(child, 0)[1] != 0]
        if failed:
            print(f"failed: ranks {failed}", file=sys.stderr)
            return 1
        results = [json.loads((times / str(rank)).read_text(encoding="utf-8")) for rank in range(ranks)]
    slowest = {phase: round(max(result[phase] for result in results), 2) for phase in results[0]}
    print(json.dumps({"ranks": ranks, "seconds": slowest}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
