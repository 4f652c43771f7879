"""Profiling that is switched on while a training runs, by a file.

The file profiler_config.json in the folder given to init() says what to profile. When it changes, ``active`` steps are
profiled from the next step() on.
"""

import json
from pathlib import Path
from typing import Any

from torch_cann.profiler import _profile
from torch_cann.profiler.experimental_config import AiCMetrics, ProfilerLevel, _ExperimentalConfig

__all__ = ["init", "set_state", "start", "step"]

_FILE = "profiler_config.json"
_DEFAULTS: dict[str, Any] = {
    "prof_dir": "./",
    "active": 1,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
    "with_flops": False,
    "with_modules": False,
    "experimental_config": {"profiler_level": "Level0"},
}


class _Monitor:
    """The configuration that is watched, and the profile that is running."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.seen: int | None = None
        self.running: _profile.profile | None = None
        self.left = 0
        self.state: dict[str, Any] = {}

    def watch(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / _FILE
        if not self.path.exists():
            self.path.write_text(json.dumps(_DEFAULTS, indent=4))
        self.seen = self.path.stat().st_mtime_ns

    def begin(self, path: Path) -> None:
        options = {**_DEFAULTS, **json.loads(path.read_text())}
        flags = {k: options[k] for k in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")}
        details = options["experimental_config"]
        config = _ExperimentalConfig(
            profiler_level=ProfilerLevel[details.get("profiler_level", "Level0")],
            aic_metrics=AiCMetrics[details.get("aic_metrics", "AiCoreNone")],
        )
        handler = _profile.tensorboard_trace_handler(options["prof_dir"])
        self.running = _profile.profile(on_trace_ready=handler, experimental_config=config, **flags)
        self.left = int(options["active"])
        self.running.start()

    def step(self) -> None:
        if self.running is not None:
            self.left -= 1
            if self.left == 0:
                self.running.stop()
                self.running = None
        elif self.path is not None and self.path.exists() and self.path.stat().st_mtime_ns != self.seen:
            self.seen = self.path.stat().st_mtime_ns
            self.begin(self.path)


_monitor = _Monitor()


def init(path: str) -> None:
    """Watches profiler_config.json in the folder ``path``; it is made, with defaults, if it is not there."""
    _monitor.watch(Path(path))


def start(config_path: str | None = None) -> None:
    """Profiles from now on, as the file ``config_path``, or the one watched, says.

    Raises RuntimeError without either, or while a profile is running.
    """
    path = Path(config_path) if config_path is not None else _monitor.path
    if path is None:
        raise RuntimeError("dynamic_profile.start() needs a config_path, or init() before it")
    if _monitor.running is not None:
        raise RuntimeError("a dynamic profile is running already")
    _monitor.begin(path)


def step() -> None:
    """After each training step. Raises RuntimeError before init() or start()."""
    if _monitor.path is None and _monitor.running is None:
        raise RuntimeError("dynamic_profile.step() needs init() or start() before it")
    _monitor.step()


def set_state(state_step: dict[str, Any]) -> None:
    """Remembers what a monitor of this process set; see get_state()."""
    _monitor.state = dict(state_step)


def get_state() -> dict[str, Any]:
    return dict(_monitor.state)
