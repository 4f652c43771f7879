"""profile, and the handler that writes the result folder."""

import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity

from torch_cann.profiler import _folder
from torch_cann.profiler._records import Recording
from torch_cann.profiler.experimental_config import _ExperimentalConfig
from torch_cann.profiler.scheduler import Schedule

__all__ = ["_KinetoProfile", "analyse", "profile", "tensorboard_trace_handler"]


class _NpuActions:
    """What both classes add to PyTorch's."""

    experimental: _ExperimentalConfig

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to the trace and to profiler_metadata.json."""
        super().add_metadata(key, value)
        self._metadata()[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds what the JSON text ``value`` says to the trace and to profiler_metadata.json. Raises ValueError for others."""
        self._metadata()[key] = json.loads(value)
        super().add_metadata_json(key, value)

    def _metadata(self) -> dict[str, Any]:
        return self.__dict__.setdefault("_added_metadata", {})

    def _recording(self) -> Recording:
        """What was recorded in the active steps that have just ended."""
        return Recording.of(self.profiler.kineto_results.events())


class _KinetoProfile(_NpuActions, torch.profiler._KinetoProfile):
    """torch.profiler._KinetoProfile with the options of ``profile``: start() and stop() by hand, no steps."""

    def __init__(self, *, experimental_config: _ExperimentalConfig | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.experimental = experimental_config or _ExperimentalConfig()


class profile(_NpuActions, torch.profiler.profile):
    """torch.profiler.profile for CPU and NPU.

    Args:
        activities: of ProfilerActivity.CPU and .NPU; both if None.
        schedule: step number -> ProfilerAction, as torch_npu.profiler.schedule makes it. Call step() after each step.
        on_trace_ready: called with this object when active steps end, such as tensorboard_trace_handler(folder).
        record_shapes, profile_memory, with_stack, with_modules, with_flops: as in torch.profiler.profile.
        experimental_config: a torch_npu.profiler._ExperimentalConfig.
        use_cuda: deprecated; use activities.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        execution_trace_observer: Any = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        use_cuda: bool | None = None,
    ) -> None:
        if experimental_config is not None and not isinstance(experimental_config, _ExperimentalConfig):
            raise TypeError(
                "experimental_config must be a torch_npu.profiler._ExperimentalConfig, but is "
                f"{type(experimental_config).__name__}"
            )
        if use_cuda is not None:
            warnings.warn("use_cuda is deprecated, use activities", FutureWarning, stacklevel=2)
        npu = ProfilerActivity.PrivateUse1
        # A script written for CUDA, or patched for one, asks for activity that this machine cannot have.
        wanted = {npu if a == ProfilerActivity.CUDA else a for a in activities or (ProfilerActivity.CPU, npu)}
        super().__init__(
            activities=wanted,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            execution_trace_observer=execution_trace_observer,
            custom_trace_id_callback=custom_trace_id_callback,
        )
        self.experimental = experimental_config or _ExperimentalConfig()
        self._marks_steps = self.record_steps

    def step(self) -> None:
        """Ends a step of the training and begins the next one.

        PyTorch makes an event of every step; where the schedule records nothing, nobody would see it, and a small
        model would wait for it. Between two such steps there is nothing to do but count.
        """
        seen = self.schedule(self.step_num + 1) != ProfilerAction.NONE
        if not seen and self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None
        if not seen and self.current_action == ProfilerAction.NONE and "KINETO_USE_DAEMON" not in os.environ:
            self.step_num += 1
            return
        self.record_steps = self._marks_steps and seen
        super().step()


def _configuration(prof: Any) -> dict[str, Any]:
    """How ``prof`` was made, in the layout of profiler_info.json."""
    schedule = getattr(prof, "schedule", None)
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    experimental = getattr(prof, "experimental", _ExperimentalConfig())
    return {
        "common_config": {
            "activities": sorted(str(activity) for activity in prof.activities),
            "schedule": dict(vars(schedule)) if isinstance(schedule, Schedule) else {},
            **{name: bool(getattr(prof, name)) for name in flags},
        },
        "experimental_config": {
            "_profiler_level": experimental.profiler_level.value,
            "_aic_metrics": experimental.aic_metrics.value,
            "_export_type": [kind.value for kind in experimental.export_type],
            "_mstx": experimental.mstx,
        },
    }


def tensorboard_trace_handler(
    dir_name: str | None = None,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
) -> Callable[[Any], None]:
    """Handler for on_trace_ready: writes ``<dir_name>/<worker>_<time>_ascend_pt/ASCEND_PROFILER_OUTPUT``.

    Args:
        dir_name: made if absent; by default ASCEND_WORK_PATH/profiling_data if that is set, else the current folder.
        worker_name: by default host name and process id.
        analyse_flag: False writes only the trace, not the tables or databases.
        async_mode: writes in a thread; the interpreter waits for it at exit.
    """
    if worker_name is not None and (not worker_name or "/" in worker_name):
        raise ValueError(f"worker_name must be a plain name, but is {worker_name!r}")
    if dir_name is None:
        work = os.environ.get("ASCEND_WORK_PATH")
        dir_name = os.path.join(work, "profiling_data") if work else "."
    base = Path(dir_name)
    base.mkdir(parents=True, exist_ok=True)
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def handle(prof: Any) -> None:
        now = time.time()
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        folder = base / f"{worker}_{stamp}_ascend_pt"
        recording = (
            prof._recording() if isinstance(prof, _NpuActions) else Recording.of(prof.profiler.kineto_results.events())
        )
        metadata = prof._metadata() if isinstance(prof, _NpuActions) else {}
        options = getattr(prof, "experimental", _ExperimentalConfig())
        device = torch.npu.current_device()  # of this thread, not of the one that writes
        output = folder / _folder.OUTPUT
        output.mkdir(parents=True)
        prof.export_chrome_trace(str(output / _folder.TRACE))

        def write() -> None:
            _folder.write_about(folder, _configuration(prof), metadata)
            if analyse_flag:
                _folder.write_tables(folder, recording, options, device, metadata)

        if async_mode:
            threading.Thread(target=write, name="profiler_analysis").start()
        else:
            write()

    return handle


def analyse(profiler_path: str, max_process_number: int = 0, export_type: Any = None) -> None:
    """Would parse raw data of the device below ``profiler_path``. There is none: the handler has written everything.

    Raises FileNotFoundError when no result folder is there.
    """
    if not any(Path(profiler_path).glob("**/*_ascend_pt")) and not str(profiler_path).endswith("_ascend_pt"):
        raise FileNotFoundError(f"there is no folder *_ascend_pt in {profiler_path}")
