"""Where the numbers of a run go: the terminal, a file of JSON lines, TensorBoard."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol


class Sink(Protocol):
    def write(self, step: int, values: dict[str, float]) -> None: ...
    def close(self) -> None: ...


class Console:
    """A progress bar where tqdm is installed and standard error is a terminal, and a line for each record."""

    def __init__(self, total: int, step: int) -> None:
        self._bar = None
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self._bar = tqdm(total=total, initial=step, disable=None, dynamic_ncols=True, file=sys.stderr)

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def write(self, step: int, values: dict[str, float]) -> None:
        self.say(f"step {step:6d}  " + "  ".join(f"{name} {value:.6g}" for name, value in values.items()))

    def say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stdout)
        else:
            print(text, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class JsonLines:
    """One object a line, appended. What a killed run wrote past the checkpoint it is resumed from is dropped."""

    def __init__(self, path: Path, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._drop_after(path, step)
        self._file = path.open("a")

    @staticmethod
    def _drop_after(path: Path, step: int) -> None:
        kept = []
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # cut off when the run was killed
                continue
            if record.get("step", 0) <= step:
                kept.append(line)
        partial = path.with_suffix(path.suffix + ".partial")
        partial.write_text("".join(line + "\n" for line in kept))
        os.replace(partial, path)

    def write(self, step: int, values: dict[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Scalars in TensorBoard's format."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("tensorboard_dir needs the package tensorboard: pip install tensorboard") from error
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
