"""Runs of the examples in sizes that take seconds, some of which several tests share."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import DEVICE, TINY_GPT, launch, printed


class Examples:
    """Starts examples; everything they write goes to `folder`, where the encoded text is shared by all runs."""

    def __init__(self, folder: Path):
        self.folder = folder

    def start(self, script: str, *options: str, processes: int = 0) -> subprocess.CompletedProcess:
        """Runs a script of examples/ to its end, under torchrun if `processes` is given."""
        return launch(self.folder, script, "--device", DEVICE, *options, processes=processes)

    def run(self, script: str, *options: str, processes: int = 0) -> str:
        """What the script printed; fails the test unless it exits with 0."""
        return printed(self.start(script, *options, processes=processes))

    def train_gpt(self, name: str, *options: str, processes: int = 0) -> list[dict]:
        """Trains the tiny GPT under a name of its own; returns the rows that this and earlier runs of it logged."""
        log = self.folder / f"{name}.jsonl"
        files = ("--checkpoint", f"{name}.pt", "--log-file", str(log), "--work-dir", "tokens")
        text = self.run("train_gpt.py", *TINY_GPT, *files, *options, processes=processes)
        (self.folder / f"{name}.txt").write_text(text)
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
