"""Runs workload.py dry on simulated servers, by npu-plan, and reads the answer."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
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

    Memory is nearly a straight line in batch and in layers, so two runs that fit foresee the answer, and runs beside it
    prove it. The peak of a run that does not fit says nothing.
    """

    def at(multiple: int) -> Planned:
        return plan(soc, 1, **options, **{name: multiple * step})

    first, second = at(2), at(4)
    if second.fits:
        each = (second.peak - first.peak) / 2
        foreseen = 4 + int((second.capacity - second.peak) / max(each, second.capacity / 1000))
        low, high = _around(foreseen, 4, lambda multiple: at(multiple).fits)
    else:
        low, high = (2, 4) if first.fits else (0, 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle).fits else (low, middle)
    return low * step


def _around(guess: int, least: int, fits: Callable[[int], bool]) -> tuple[int, int]:
    """A number that fits, ``least`` does, and a larger one that does not, found from ``guess`` in growing strides."""
    stride = 1
    if fits(guess):
        while fits(guess + stride):
            guess, stride = guess + stride, 2 * stride
        return guess, guess + stride
    while guess - stride > least and not fits(guess - stride):
        guess, stride = guess - stride, 2 * stride
    return max(least, guess - stride), guess
