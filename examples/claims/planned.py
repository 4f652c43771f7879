"""Runs workload.py dry on simulated servers, by npu-plan, and reads the answer."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WORKLOAD = Path(__file__).with_name("workload.py")
CARDS = 8  # of a server
_DOES_NOT_FIT = 3  # npu-plan's exit code


@dataclass(frozen=True)
class Planned:
    """A step as npu-plan foresees it.

    Attributes:
        seconds: of one step.
        samples: sequences of all cards in that step.
        peak, capacity: bytes of HBM that the fullest card reserves, and that it has. A card that is nearly full frees
            reserved memory that is not in use, so a full card's peak says little.
        allocated: bytes of it that tensors occupy at most.
        communication: share of the step in which the compute stream waits for other cards.
        fits: whether that is within the card's HBM; if not, time and share are of the step up to there.
    """

    seconds: float
    samples: int
    peak: int
    allocated: int
    capacity: int
    communication: float
    fits: bool

    @property
    def rate(self) -> float:
        """Sequences a second."""
        return self.samples / self.seconds


@cache
def plan(soc: str, servers: int, **options: str | float) -> Planned:
    """``workload.py`` with its ``options``, such as batch=2 for --batch 2, on all cards of so many servers.

    Raises:
        RuntimeError: if npu-plan has no answer; its sentence is the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "npu_plan", "run", "--soc", soc, "--nnodes", str(servers)]
        command += ["--nproc-per-node", str(CARDS), "--json", str(answer), "--no-mirror-check"]
        command += [str(WORKLOAD)]
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, _DOES_NOT_FIT):
            raise RuntimeError(f"{' '.join(command[1:])}\n{done.stderr.strip() or done.stdout.strip()}")
        found = json.loads(answer.read_text())
    spent = [rank["spent_us"] for rank in found["ranks"]]
    waiting = max(s["exposed_collective"] + s["late_rank"] + s["idle"] for s in spent)
    return Planned(
        seconds=found["step"]["seconds"],
        samples=servers * CARDS * options.get("batch", 1) * options.get("accumulate", 1),
        peak=max(rank["memory"]["peak"] for rank in found["ranks"]),
        allocated=max(rank["memory"]["peak_allocated"] for rank in found["ranks"]),
        capacity=found["ranks"][0]["memory"]["capacity"],
        communication=waiting / max(rank["step_us"] for rank in found["ranks"]),
        fits=done.returncode == 0,
    )


def largest(soc: str, name: str, step: int = 1, **options: str | float) -> int:
    """The largest multiple of ``step`` for option ``name``, beside ``options``, that fits on one server; 0 if none.

    Memory is nearly a straight line in batch and in layers, so two runs foresee the answer, and runs beside it prove
    it.
    """

    def at(multiple: int) -> Planned:
        return plan(soc, 1, **options, **{name: multiple * step})

    first, second = at(2), at(4)
    slope = (second.peak - first.peak) / 2
    low, high = 0, None  # what fits, what does not
    guess = max(1, int(2 + (first.capacity - first.peak) / max(slope, 1)))
    stride = 1
    while high is None or high - low > 1:
        if at(guess).fits:
            low, up = guess, True
        else:
            high, up = guess, False
        if high is not None and low > 0:
            guess = (low + high) // 2
        else:
            guess, stride = max(1, guess + stride if up else guess - stride), 2 * stride
        if high == 1:
            break
    return low * step
