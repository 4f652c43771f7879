"""Runs cases in a worker process that may crash or hang; both become failures of the check that was running."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS = 180.0


class WorkerStartError(RuntimeError):
    """The worker did not come up; the message holds the end of what it printed."""


class Runner:
    """Owns one worker process, started on demand and replaced after a crash or timeout. Not thread-safe."""

    def __init__(self, device: str, check_seconds: float = 120.0) -> None:
        self.device = device
        # Seconds a single check may take; may be changed between cases.
        self.check_seconds = check_seconds
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")

    @property
    def process_id(self) -> int | None:
        """The worker's process id, or None while there is none."""
        return self._process.pid if self._process is not None else None

    def run(self, case: str, checks: Sequence[str]) -> list[dict[str, Any]]:
        """The outcomes of ``checks`` for a case, in order; never raises for what the case does to the worker."""
        outcomes: list[dict[str, Any]] = []
        while len(outcomes) < len(checks):
            outcomes += self._attempt(case, checks[len(outcomes) :])
        return outcomes

    def close(self) -> None:
        """Ends the worker, if one is running."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _attempt(self, case: str, checks: Sequence[str]) -> list[dict[str, Any]]:
        """Outcomes until all checks are done or the worker is lost; a lost worker adds a failure for its check."""
        self._ensure_started()
        outcomes: list[dict[str, Any]] = []
        running = checks[0]
        try:
            self._process.stdin.write(json.dumps({"case": case, "checks": list(checks)}) + "\n")
            self._process.stdin.flush()
        except OSError:
            return [self._lost(running)]
        while True:
            try:
                line = self._lines.get(timeout=self.check_seconds)
            except queue.Empty:
                self._process.kill()
                self._discard()
                outcomes.append(_failure(running, "timeout", f"no result within {self.check_seconds:.0f} s"))
                return outcomes
            if line is None:
                outcomes.append(self._lost(running))
                return outcomes
            message = json.loads(line)
            if "begin" in message:
                running = message["begin"]
            elif "done" in message:
                return outcomes
            else:
                outcomes.append(message)

    def _ensure_started(self) -> None:
        if self._process is not None:
            return
        paths = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
        # 16-bit products by the CPU's own kernels, which is what the results are compared with on any processor
        environment = {"TORCH_CANN_LOW_PRECISION": "native", **os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._lines = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "opsuite.worker", self.device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True).start()
        try:
            greeting = self._lines.get(timeout=_START_SECONDS)
        except queue.Empty:
            greeting = None
        if greeting is None:
            self._process.kill()
            self._discard()
            raise WorkerStartError(f"the worker for device {self.device} did not start:\n{self._log_tail()}")

    def _lost(self, check: str) -> dict[str, Any]:
        code = self._discard()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return _failure(check, "crash", f"the process ended with {name}: {self._log_tail()}")

    def _discard(self) -> int:
        code = self._process.wait()
        self._process.stdin = None
        self._process = None
        return code

    def _log_tail(self) -> str:
        self._log.flush()
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 1500))
        return self._log.read()[-1500:]


def _failure(check: str, kind: str, detail: str) -> dict[str, Any]:
    return {"check": check, "status": "fail", "kind": kind, "detail": detail, "samples": 0, "seconds": 0.0}


def _read_lines(stream: Any, lines: queue.SimpleQueue[str | None]) -> None:
    """Moves a worker's lines into the queue; None marks the end."""
    with contextlib.suppress(ValueError):
        for line in stream:
            lines.put(line)
    lines.put(None)
