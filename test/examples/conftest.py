"""Runs the examples as a user does, each in processes of its own, in sizes that take seconds.

``CANN_TEST_EXAMPLES_DEVICE=cpu`` runs them on the host, which tests these tests and the examples without the device.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEVICE = os.environ.get("CANN_TEST_EXAMPLES_DEVICE", "npu")

# 24 updates of a model of 0.13 M parameters, in float32, so that results differ only by the order of sums.
TINY_GPT = (
    *("--layers", "2", "--heads", "2", "--width", "64", "--vocab-size", "512", "--corpus-mb", "1"),
    *("--seq-len", "64", "--batch-size", "8", "--steps", "24", "--warmup", "4", "--lr", "5e-3"),
    *("--eval-every", "4", "--eval-sequences", "16", "--sample-tokens", "8", "--dtype", "float32"),
)


class Examples:
    """Starts examples; everything they write goes to `folder`, where the encoded text is shared by all runs."""

    def __init__(self, folder: Path):
        self.folder = folder

    def start(self, script: str, *options: str, processes: int = 0) -> subprocess.CompletedProcess:
        """Runs a script of examples/ to its end, under torchrun if `processes` is given."""
        launcher = []
        if processes:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        return subprocess.run(
            [sys.executable, *launcher, str(EXAMPLES / script), "--device", DEVICE, *options],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def run(self, script: str, *options: str, processes: int = 0) -> str:
        """What the script printed; fails the test unless it exits with 0."""
        done = self.start(script, *options, processes=processes)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def train_gpt(self, name: str, *options: str, processes: int = 0) -> list[dict]:
        """Trains the tiny GPT under a name of its own; returns the rows that this and earlier runs of it logged."""
        log = self.folder / f"{name}.jsonl"
        files = ("--checkpoint", f"{name}.pt", "--log-file", str(log), "--work-dir", "tokens")
        printed = self.run("train_gpt.py", *TINY_GPT, *files, *options, processes=processes)
        (self.folder / f"{name}.txt").write_text(printed)
        return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return Examples(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="session")
def stopped(examples: Examples) -> Callable[[str, str], None]:
    """stopped(kind, name): run `name` is then as a run of `kind`, "ddp" or "fsdp2", that stopped after 16 steps."""

    def stop(kind: str, name: str) -> None:
        original = f"stopped-{kind}"
        if not (examples.folder / f"{original}.pt").exists():
            examples.train_gpt(original, "--parallel", kind, "--stop-at", "16", processes=2)
        for suffix in ("pt", "jsonl"):
            shutil.copy(examples.folder / f"{original}.{suffix}", examples.folder / f"{name}.{suffix}")

    return stop


@pytest.fixture(scope="session")
def gpt_losses(examples: Examples) -> Callable[[str], list[dict]]:
    """Losses of a whole run of the tiny GPT: "single", "ddp" or "fsdp2". Each is trained once, when first asked for."""
    kinds = {"single": ((), 0), "ddp": ((), 2), "fsdp2": (("--parallel", "fsdp2"), 2)}
    done: dict[str, list[dict]] = {}

    def losses(kind: str) -> list[dict]:
        if kind not in done:
            options, processes = kinds[kind]
            done[kind] = examples.train_gpt(kind, *options, processes=processes)
        return done[kind]

    return losses
