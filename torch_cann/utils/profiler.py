"""An older helper around torch_npu.profiler: one profile of a training loop from a given step on."""

from collections.abc import Callable
from typing import Any


def Singleton(cls: type) -> Callable[..., Any]:
    """Class decorator: one object for every call."""
    objects: list[Any] = []

    def get(*args: Any, **kwargs: Any) -> Any:
        if not objects:
            objects.append(cls(*args, **kwargs))
        return objects[0]

    return get


class Profile:
    """Profiles the step ``start_step`` (from 0), told apart by start() and end() around each step.

    Args:
        start_step: the step to profile.
        save_path: folder for the result.
        profile_type: "TORCH" and "CANN" are the same here; None profiles nothing.
        use_npu: whether device activity is wanted.
        record_shape: whether operators are recorded with the shapes of their inputs.
        experimental_config: as of torch_npu.profiler.profile.
    """

    def __init__(
        self,
        start_step: int = 10,
        save_path: str = "./npu_profiling",
        profile_type: str | None = None,
        use_npu: bool = True,
        record_shape: bool = True,
        experimental_config: Any = None,
        **kwargs: Any,
    ) -> None:
        if profile_type not in (None, "TORCH", "CANN"):
            raise ValueError(f"profile_type must be 'TORCH', 'CANN' or None, but is {profile_type!r}")
        self._step, self._start_step, self._active = -1, start_step, None
        self._enabled, self._save_path = profile_type is not None, save_path
        self._options = {"record_shapes": record_shape, "experimental_config": experimental_config, **kwargs}
        self._use_npu = use_npu

    def start(self) -> None:
        """Before a step."""
        self._step += 1
        if self._enabled and self._step == self._start_step:
            from torch_cann import profiler

            activity = profiler.ProfilerActivity
            self._active = profiler.profile(
                activities=[activity.CPU, activity.NPU] if self._use_npu else [activity.CPU],
                on_trace_ready=profiler.tensorboard_trace_handler(self._save_path),
                **self._options,
            )
            self._active.start()

    def end(self) -> None:
        """After a step."""
        if self._active is not None:
            self._active.stop()
            self._active = None
