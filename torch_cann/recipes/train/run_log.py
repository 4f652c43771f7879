"""What a run says about itself: sums between records, and the records to every sink of rank 0."""

import re
import time
from pathlib import Path
from typing import Any

import torch

from torch_cann.recipes.train.metrics import Console, JsonLines, Sink, TensorBoard


class RunLog:
    """Collects losses on the device, and every so often writes a record.

    Args:
        writes: whether this is the rank that speaks; the others only take part in the means.
        metrics_file, tensorboard_dir: None writes none.
    """

    def __init__(
        self, writes: bool, console: bool, metrics_file: str | Path | None, tensorboard_dir: str | Path | None
    ) -> None:
        self._writes, self._shows = writes, console
        self._file = metrics_file
        self._folder = tensorboard_dir
        self._loss: torch.Tensor | None = None
        self._steps = self._samples = 0
        self._console: Console | None = None
        self._sinks: list[Sink] = []
        self._said: set[str] = set()

    def open(self, total: int, step: int) -> None:
        """Before the first step after ``step`` of ``total``."""
        if self._writes:
            self._console = Console(total, step) if self._shows else None
            self._sinks = [self._console] if self._console else []
            if self._file is not None:
                self._sinks.append(JsonLines(Path(self._file), step))
            if self._folder is not None:
                self._sinks.append(TensorBoard(Path(self._folder), step))
        self._since = time.perf_counter()

    def add(self, loss: torch.Tensor, samples: int) -> None:
        """One step: its loss, left on the device, and this rank's samples."""
        self._loss = loss.clone() if self._loss is None else self._loss + loss
        self._steps += 1
        self._samples += samples
        if self._console:
            self._console.advance()

    def take_mean(self) -> tuple[torch.Tensor, float]:
        """The mean loss, and this rank's samples a second, since it was asked last."""
        now = time.perf_counter()
        mean, rate = self._loss / self._steps, self._samples / max(now - self._since, 1e-9)
        self._loss, self._steps, self._samples, self._since = None, 0, 0, now
        return mean, rate

    def write(self, step: int, values: dict[str, float | None]) -> None:
        """A record; values that are None are left out."""
        known = {name: value for name, value in values.items() if value is not None}
        for sink in self._sinks:
            sink.write(step, known)

    def advise(self, step: int, advice: list[str]) -> None:
        """Says each piece of advice once."""
        for text in advice:
            kind = re.sub(r"[-+.e\d]+", "", text)  # numbers change, the advice is the same
            if kind not in self._said:
                self._said.add(kind)
                self.say(f"step {step:6d}  advice: {text}")

    def say(self, text: str) -> None:
        if self._console:
            self._console.say(text)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
        self._sinks, self._console = [], None

    def state_dict(self) -> dict[str, Any]:
        return {"loss": None if self._loss is None else self._loss.cpu(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self._loss = None if state["loss"] is None else state["loss"].to(device)
        self._steps = state["steps"]
