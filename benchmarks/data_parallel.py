"""A DistributedDataParallel training step of a GPT: ranks on npu cards over "hccl" against CPU ranks over Gloo.

Both sides run in the same processes in turns, round by round, from the same weights and batches; a round's time is the
slowest rank's. What a step spends on communication is what it takes longer than the same step under no_sync(), so
what is overlapped with the backward counts as nothing. Shorter sequences are less to compute for as many gradients, and
make communication a larger share.

    python benchmarks/data_parallel.py --ranks 2 --tokens 16 64 256
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import torch
import torch.distributed as dist
import torch.nn.functional as F
from models import MODELS

# Device and group of each side; the default group is hccl's.
SIDES = {"hccl": "npu", "gloo": "cpu"}


class Step:
    """One side's model with its optimizer."""

    def __init__(self, device: str, group: dist.ProcessGroup | None, tokens: int) -> None:
        torch.manual_seed(0)
        module, inputs, targets = MODELS["gpt"]()
        self._inputs, self._targets = inputs[:, :tokens].to(device), targets[:tokens].to(device)
        self._model = torch.nn.parallel.DistributedDataParallel(module.to(device), process_group=group)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self.loss = float("nan")

    def run(self, synchronized: bool) -> None:
        with contextlib.nullcontext() if synchronized else self._model.no_sync():
            self._optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self._model(self._inputs), self._targets)
            loss.backward()
            self._optimizer.step()
            self.loss = loss.item()


def seconds(step: Step, synchronized: bool, calls: int) -> float:
    """Of one step, on the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        step.run(synchronized)
    taken = torch.tensor([(time.perf_counter() - start) / calls], device="npu")
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def measure(options: argparse.Namespace, rank: int) -> list[dict[str, Any]]:
    """What one rank measures; the same on all."""
    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    dist.init_process_group(
        "hccl", init_method=f"file://{os.environ['CANN_BENCH_STORE']}", rank=rank, world_size=options.ranks
    )
    groups = {"hccl": None, "gloo": dist.new_group(backend="gloo")}
    results = []
    for tokens in options.tokens:
        steps = {side: Step(device, groups[side], tokens) for side, device in SIDES.items()}
        subjects = [(side, synchronized) for synchronized in (True, False) for side in SIDES]
        rounds: dict[tuple[str, bool], list[float]] = {subject: [] for subject in subjects}
        for side, synchronized in subjects * 2:  # warm-up; the second backward is the first with buckets as they stay
            once = seconds(steps[side], synchronized, 1)
        calls = int(min(max(options.round_seconds / once, 1), 50))
        for index in range(options.rounds):
            for side, synchronized in subjects if index % 2 == 0 else subjects[::-1]:
                rounds[side, synchronized].append(seconds(steps[side], synchronized, calls))
        results.append(
            {
                "tokens": tokens,
                "loss": {side: step.loss for side, step in steps.items()},
                "step": {side: rounds[side, True] for side in SIDES},
                "no_sync": {side: rounds[side, False] for side in SIDES},
            }
        )
    dist.destroy_process_group()
    return results


def run_ranks(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Starts the ranks and gives what rank 0 measured."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = dict(
            os.environ,
            LOCAL_WORLD_SIZE=str(options.ranks),
            OMP_NUM_THREADS="1",
            CANN_BENCH_STORE=os.path.join(folder, "store"),
        )
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--result", str(result)]
        processes = [
            subprocess.Popen(command, env=dict(environment, RANK=str(rank))) for rank in range(options.ranks)
        ]
        if any([process.wait() for process in processes]):
            raise SystemExit("a rank failed; see above")
        return json.loads(result.read_text(encoding="utf-8"))


def row_of(result: dict[str, Any]) -> list[str]:
    step, alone = (
        {side: statistics.median(rounds) for side, rounds in result[key].items()} for key in ("step", "no_sync")
    )
    spent = {side: step[side] - alone[side] for side in SIDES}
    return [
        f"gpt, {result['tokens']} tokens",
        *(f"{step[side] * 1e3:.2f}" for side in ("gloo", "hccl")),
        f"{step['gloo'] / step['hccl']:.2f}x",
        *(f"{spent[side] * 1e3:.2f}" for side in ("gloo", "hccl")),
        f"{spent['gloo'] / step['gloo']:.0%}",
        f"{spent['hccl'] / spent['gloo']:.2f}" if spent["gloo"] > 0 else "-",
        *(f"{result['loss'][side]:.5f}" for side in ("gloo", "hccl")),
    ]


def main() -> None:
    parser = harness.argument_parser(__doc__, rounds=7)
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256], help="per rank (default: %(default)s)")
    parser.add_argument("--round-seconds", type=float, default=0.3, help="length of a round (default: %(default)s)")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    harness.prepare(options)
    if options.result is not None:
        rank = int(os.environ["RANK"])
        results = measure(options, rank)
        if rank == 0:
            options.result.write_text(json.dumps(results), encoding="utf-8")
        return
    results = run_ranks(options)
    columns = ["model", "gloo ms", "hccl ms", "speed-up", "gloo comm ms", "hccl comm ms", "gloo share", "comm ratio"]
    harness.report(options, [*columns, "gloo loss", "hccl loss"], [row_of(one) for one in results], {"steps": results})


if __name__ == "__main__":
    main()
