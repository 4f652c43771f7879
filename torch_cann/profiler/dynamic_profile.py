"""Profiling that is switched on while a training runs, by a file.

The file profiler_config.json in the folder given to init() says what to profile. When it changes, ``active`` steps are
profiled from the next step() on, or from the step that ``start_step`` counts since init(), after ``warmup`` steps; on
all ranks, or with ``is_rank`` on those of ``rank_list``. Its other entries are options of torch_npu.profiler.profile,
``prof_dir`` for the results and ``metadata`` to add to them. ``analyse`` makes no difference: tables are always written.
"""

import inspect
import json
import os
import warnings
from pathlib import Path
from typing import Any

from torch_cann.profiler import _profile
from torch_cann.profiler.experimental_config import AiCMetrics, ExportType, ProfilerLevel, _ExperimentalConfig
from torch_cann.profiler.scheduler import Schedule

__all__ = ["init", "set_state", "start", "step"]

_FILE = "profiler_config.json"
_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_DEFAULTS: dict[str, Any] = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    **dict.fromkeys(_FLAGS, False),
    "warmup": 0,
    "active": 1,
    "start_step": 0,
    "is_rank": False,
    "rank_list": [],
    "experimental_config": {"profiler_level": "Level0"},
    "metadata": {},
}


def _options(path: Path) -> dict[str, Any]:
    """What the file says, defaults for the rest. Raises ValueError for a name it cannot have, or text that is not JSON."""
    given = json.loads(path.read_text())
    details = given.get("experimental_config", {})
    unknown = [k for k in given if k not in _DEFAULTS]
    unknown += [k for k in details if k not in inspect.signature(_ExperimentalConfig).parameters]
    if unknown:
        raise ValueError(f"{path} has {', '.join(unknown)}, but a dynamic profile takes only {', '.join(_DEFAULTS)}")
    return {**_DEFAULTS, **given}


def _experimental_config(details: dict[str, Any]) -> _ExperimentalConfig:
    kinds = {"profiler_level": ProfilerLevel, "aic_metrics": AiCMetrics}
    return _ExperimentalConfig(
        **{
            name: kinds[name][value] if name in kinds else ExportType(value) if name == "export_type" else value
            for name, value in details.items()
        }
    )


def _start(options: dict[str, Any]) -> _profile.profile:
    running = _profile.profile(
        activities=[getattr(_profile.ProfilerActivity, name.upper()) for name in options["activities"]],
        schedule=Schedule(wait=0, warmup=int(options["warmup"]), active=int(options["active"]), repeat=1),
        on_trace_ready=_profile.tensorboard_trace_handler(options["prof_dir"]),
        experimental_config=_experimental_config(options["experimental_config"]),
        **{name: options[name] for name in _FLAGS},
    )
    for key, value in options["metadata"].items():
        running.add_metadata_json(key, json.dumps(value))
    running.start()
    return running


class _Monitor:
    """The configuration that is watched, the one that waits for its step, and the profile that is running."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.seen: int | None = None
        self.steps = 0
        self.waiting: dict[str, Any] | None = None
        self.running: _profile.profile | None = None
        self.left = 0
        self.state: dict[str, Any] = {}

    def watch(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / _FILE
        if not self.path.exists():
            self.path.write_text(json.dumps(_DEFAULTS, indent=4))
        self.seen = self.path.stat().st_mtime_ns
        self.steps, self.waiting = 0, None

    def begin(self, options: dict[str, Any]) -> None:
        self.waiting = None
        if options["is_rank"] and int(os.environ.get("RANK", "0")) not in options["rank_list"]:
            return
        self.left = int(options["warmup"]) + int(options["active"])
        self.running = _start(options)

    def step(self) -> None:
        self.steps += 1
        if self.running is not None:
            self.running.step()
            self.left -= 1
            if self.left == 0:
                self.running.stop()
                self.running = None
            return
        try:
            if self.path is not None and self.path.exists() and self.path.stat().st_mtime_ns != self.seen:
                self.seen = self.path.stat().st_mtime_ns
                self.waiting = _options(self.path)
            if self.waiting is not None and self.steps >= int(self.waiting["start_step"]):
                self.begin(self.waiting)
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # a slip in a file must not end a training
            warnings.warn(f"no dynamic profile: {type(error).__name__}: {error}", stacklevel=3)


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
    _monitor.begin(_options(path))


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
