"""Collectives of backend "hccl" on npu tensors against Gloo and MPICH on CPU tensors, interleaved in one run.

Ranks are processes of this host. For each operation and size the subjects take turns, round by round; a round's time is
the slowest rank's, per operation. The table gives microseconds by the median round, and ratios of medians: above 1.0 hccl
is the faster. Sizes are those of the larger buffer (all_gather's output, reduce_scatter's input); sendrecv is half of a
ping-pong between ranks 0 and 1. Beside the bandwidths stands what the machine can do: copies on all ranks at once.

"floor" is the same calls for one element on PyTorch's backend "fake", which moves nothing to other ranks: what Python, the dispatcher and c10d take of
every call of torch.distributed, before and after a backend does its work. mpi4py pays none of it, so where MPICH is below
the floor no backend could win; the summary gives MPICH's mean also without those cells.

With --rate the ranks are halved over two network namespaces, which count as two hosts, joined by a link of that rate; a
fourth subject, "fp16", is hccl with 16-bit sums on the wire. Needs root, and leaves MPICH out.

MPICH takes part if mpi4py and an `mpiexec` are installed (pip install mpich mpi4py), else its columns are missing.

    python benchmarks/collectives.py --ranks 2 4 --sizes 4 65536 1048576 --json out.json
    python benchmarks/collectives.py --ranks 4 --rate 1gbit --operations all_reduce --sizes 26214400
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "test" / "distributed")]
import harness  # noqa: E402
import namespaces  # noqa: E402

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "sendrecv")
SIZES = (4, 4096, 65536, 1 << 20, 25 << 20, 100 << 20)
# Bus bandwidth over algorithm bandwidth, as nccl-tests define it, for n ranks.
BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "all_to_all": lambda n: (n - 1) / n,
    "sendrecv": lambda n: 1.0,
}


def torch_operations(device: str, group, rank: int, ranks: int, size: int) -> dict[str, Callable[[], Any]]:
    """Closures over tensors of `size` bytes, which torch.distributed carries out on `group`."""
    import torch
    import torch.distributed as dist

    per_rank = max(size // 4 // ranks, 1)
    whole = torch.ones(per_rank * ranks, device=device)
    other = torch.zeros_like(whole)
    part = torch.ones(per_rank, device=device)
    one = torch.ones(max(size // 4, 1), device=device)

    def sendrecv() -> None:
        if rank == 0:
            dist.send(one, 1, group=group)
            dist.recv(one, 1, group=group)
        elif rank == 1:
            dist.recv(one, 0, group=group)
            dist.send(one, 0, group=group)

    return {
        "all_reduce": lambda: dist.all_reduce(one, dist.ReduceOp.SUM, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.SUM, group=group),
        "broadcast": lambda: dist.broadcast(one, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "sendrecv": sendrecv,
    }


def mpi_operations(comm, rank: int, ranks: int, size: int) -> dict[str, Callable[[], Any]]:
    """The same with mpi4py on numpy arrays."""
    import numpy
    from mpi4py import MPI

    per_rank = max(size // 4 // ranks, 1)
    whole = numpy.ones(per_rank * ranks, numpy.float32)
    other = numpy.zeros_like(whole)
    part = numpy.ones(per_rank, numpy.float32)
    one = numpy.ones(max(size // 4, 1), numpy.float32)

    def sendrecv() -> None:
        if rank == 0:
            comm.Send(one, 1)
            comm.Recv(one, 1)
        elif rank == 1:
            comm.Recv(one, 0)
            comm.Send(one, 0)

    return {
        "all_reduce": lambda: comm.Allreduce(MPI.IN_PLACE, one, MPI.SUM),
        "all_gather": lambda: comm.Allgather(part, whole),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(whole, part, MPI.SUM),
        "broadcast": lambda: comm.Bcast(one, 0),
        "all_to_all": lambda: comm.Alltoall(whole, other),
        "sendrecv": sendrecv,
    }


class Rank:
    """One rank: all subjects over the same processes, so that they are timed in turns."""

    def __init__(self, options: argparse.Namespace):
        import torch
        import torch.distributed as dist

        self.options = options
        self.comm = None
        if os.environ["CANN_BENCH_MPI"] == "1":
            from mpi4py import MPI

            self.comm = MPI.COMM_WORLD
            os.environ["RANK"] = str(self.comm.Get_rank())
        self.rank = int(os.environ["RANK"])
        self.ranks = int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(1)
        import torch_npu  # noqa: F401 - registers the device where the entry point is not installed

        if options.namespaces:
            namespaces.enter(options.namespaces[self.rank * 2 // self.ranks])
        self.device = f"npu:{self.rank}"
        torch.npu.set_device(self.rank)
        store = os.environ["CANN_BENCH_STORE"]
        dist.init_process_group("hccl", init_method=f"file://{store}", rank=self.rank, world_size=self.ranks)
        self.gloo = dist.new_group(backend="gloo")
        self.floor = self.floor_group()
        self.compressed = self.compressed_group() if options.namespaces else None
        self.dist = dist
        self.torch = torch

    @staticmethod
    def floor_group():
        import torch.distributed as dist
        import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers the backend

        return dist.new_group(backend="npu:fake")

    @staticmethod
    def compressed_group():
        import torch.distributed as dist
        from torch_npu._C._distributed_c10d import ProcessGroupHCCL

        options = ProcessGroupHCCL.Options()
        options.wire = "fp16"
        return dist.new_group(pg_options=options)

    def subjects(self, size: int) -> dict[str, dict[str, Callable[[], Any]]]:
        subjects = {
            "hccl": torch_operations(self.device, None, self.rank, self.ranks, size),
            "floor": torch_operations(self.device, self.floor, self.rank, self.ranks, 4),
            "gloo": torch_operations("cpu", self.gloo, self.rank, self.ranks, size),
        }
        if self.compressed is not None:
            subjects["fp16"] = torch_operations(self.device, self.compressed, self.rank, self.ranks, size)
        if self.comm is not None:
            subjects["mpich"] = mpi_operations(self.comm, self.rank, self.ranks, size)
        return subjects

    def slowest(self, seconds: float) -> float:
        tensor = self.torch.tensor([seconds], device=self.device)
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX)
        return tensor.item()

    def seconds(self, function: Callable[[], Any], calls: int, halves: bool) -> float:
        self.dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return self.slowest((time.perf_counter() - start) / calls / (2 if halves else 1))

    def measure(self) -> list[dict[str, Any]]:
        results = []
        for size in self.options.sizes:
            subjects = self.subjects(size)
            for operation in self.options.operations:
                functions = {name: table[operation] for name, table in subjects.items()}
                calls = {}
                halves = operation == "sendrecv"
                for name, function in functions.items():
                    self.seconds(function, 1, halves)  # warm-up
                    once = self.seconds(function, 1, halves)
                    calls[name] = int(min(max(self.options.round_seconds / max(once, 1e-6), 1), 200))
                rounds: dict[str, list[float]] = {name: [] for name in functions}
                for index in range(self.options.rounds):
                    names = list(functions) if index % 2 == 0 else list(functions)[::-1]
                    for name in names:
                        rounds[name].append(self.seconds(functions[name], calls[name], halves))
                results.append({"operation": operation, "ranks": self.ranks, "bytes": size, "seconds": rounds})
            limit = [self.seconds(self.copier(size), 1, False) for _ in range(self.options.rounds)]
            results.append({"operation": "memcpy", "ranks": self.ranks, "bytes": size, "seconds": {"limit": limit}})
        return results

    def copier(self, size: int) -> Callable[[], Any]:
        """A copy of `size` bytes, all ranks at once: the machine's limit for one pass over the data."""
        source = self.torch.ones(max(size // 4, 1))
        target = self.torch.zeros_like(source)
        target.copy_(source)
        return lambda: target.copy_(source)


def run_ranks(ranks: int, mpi: str | None, hosts: list[str]) -> list[dict[str, Any]]:
    """Starts the ranks, under mpiexec if there is one, in the namespaces `hosts`; gives what rank 0 measured."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        environment = dict(
            os.environ,
            WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks // max(len(hosts), 1)),
            OMP_NUM_THREADS="1",
            CANN_BENCH_STORE=os.path.join(folder, "store"),
            CANN_BENCH_MPI="1" if mpi else "0",
        )
        if hosts:
            environment["GLOO_SOCKET_IFNAME"] = namespaces.INTERFACE
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--result", result, "--namespaces", *hosts]
        if mpi:
            processes = [subprocess.Popen([mpi, "-n", str(ranks), *command], env=environment)]
        else:
            processes = [subprocess.Popen(command, env=dict(environment, RANK=str(rank))) for rank in range(ranks)]
        if any([process.wait() for process in processes]):
            raise SystemExit(f"a rank of {ranks} failed; see above")
        return json.loads(Path(result).read_text(encoding="utf-8"))


def find_mpiexec() -> str | None:
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def cell_name(row: dict[str, Any]) -> str:
    return f"{row['operation']} n={row['ranks']} {row['bytes']} B"


def rows_of(results: list[dict[str, Any]]) -> list[list[str]]:
    limits = {(row["ranks"], row["bytes"]): row["seconds"]["limit"] for row in results if row["operation"] == "memcpy"}
    rows = []
    for row in results:
        if row["operation"] == "memcpy":
            continue
        medians = {name: statistics.median(rounds) for name, rounds in row["seconds"].items()}
        ours = medians["hccl"]
        bandwidth = row["bytes"] / ours / 1e9
        limit = row["bytes"] / statistics.median(limits[row["ranks"], row["bytes"]]) / 1e9
        cells = [cell_name(row), f"{ours * 1e6:.1f}", f"{medians['floor'] * 1e6:.1f}"]
        for name in ("gloo", "mpich", "fp16"):
            known = name in medians
            cells += [f"{medians[name] * 1e6:.1f}" if known else "-", f"{medians[name] / ours:.2f}" if known else "-"]
        bus = bandwidth * BUS_FACTOR[row["operation"]](row["ranks"])
        rows.append([*cells, f"{bandwidth:.2f}", f"{bus:.2f}", f"{limit:.2f}"])
    return rows


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """For each other subject: the geometric mean and the least of its time over ours, over all cells, and the mean over
    those in which it is not below the floor."""
    found: dict[str, Any] = {}
    for name in ("gloo", "mpich", "fp16"):
        ratios, reachable = {}, []
        for row in results:
            if name not in row["seconds"]:
                continue
            medians = {subject: statistics.median(rounds) for subject, rounds in row["seconds"].items()}
            ratios[cell_name(row)] = medians[name] / medians["hccl"]
            if medians[name] >= medians["floor"]:
                reachable.append(ratios[cell_name(row)])
        if ratios:
            worst = min(ratios, key=ratios.__getitem__)
            found[name] = {
                "geometric_mean": harness.geometric_mean(list(ratios.values())),
                "least": ratios[worst],
                "least_cell": worst,
                "cells": len(ratios),
                "cells_above_floor": len(reachable),
                "geometric_mean_above_floor": harness.geometric_mean(reachable) if reachable else None,
            }
    return found


def main() -> None:
    parser = harness.argument_parser(__doc__, rounds=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="world sizes (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes (default: %(default)s)")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--round-seconds", type=float, default=0.05, help="length of a round (default: %(default)s)")
    parser.add_argument("--rate", help="halve the ranks over two hosts with a link of this rate, as tc writes it")
    parser.add_argument("--no-mpi", action="store_true", help="leave MPICH out")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--namespaces", nargs="*", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result is not None:
        rank = Rank(options)
        results = rank.measure()
        if rank.rank == 0:
            options.result.write_text(json.dumps(results), encoding="utf-8")
        rank.dist.destroy_process_group()
        return
    mpi = None if options.no_mpi or options.rate else find_mpiexec()
    results = []
    with namespaces.two_namespaces(options.rate) if options.rate else contextlib.nullcontext([]) as hosts:
        for ranks in options.ranks:
            results += run_ranks(ranks, mpi, hosts)
    columns = ("operation", "hccl us", "floor us", *("gloo us", "/hccl", "mpich us", "/hccl", "fp16 us", "/hccl"))
    columns += ("alg GB/s", "bus GB/s", "copy GB/s")
    harness.report(options, columns, rows_of(results), {"cells": results, "summary": summary(results)})
    for name, figures in summary(results).items():
        text = f"\n{name} time over hccl's: geometric mean {figures['geometric_mean']:.2f} of {figures['cells']} cells"
        if 0 < figures["cells_above_floor"] < figures["cells"]:
            text += f", {figures['geometric_mean_above_floor']:.2f} of the {figures['cells_above_floor']} not below the floor"
        print(f"{text}; least {figures['least']:.2f} ({figures['least_cell']})")


if __name__ == "__main__":
    main()
