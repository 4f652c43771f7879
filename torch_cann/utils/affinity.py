"""Which processors of the host the calling thread, and the threads it starts later, may use."""

import os

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["reset_thread_affinity", "set_thread_affinity"]

_at_start = os.sched_getaffinity(0)


def set_thread_affinity(core_range: list[int] | list[list[int]] | None = None) -> None:
    """Binds the calling thread to cores.

    Args:
        core_range: [first, last], both included, or a list of such ranges. None: all cores the process had at start.

    Raises:
        ValueError: a range is not of that form, or names a core that this machine does not let the process use.
    """
    if core_range is None:
        reset_thread_affinity()
        return
    ranges = core_range if core_range and isinstance(core_range[0], (list, tuple)) else [core_range]
    cores: set[int] = set()
    for pair in ranges:
        if len(pair) != 2 or not all(isinstance(core, int) for core in pair) or not 0 <= pair[0] <= pair[1]:
            raise ValueError(
                f"core_range must be [first, last] or a list of such, but got {core_range!r}" + pta_error(ErrCode.VALUE)
            )
        cores |= set(range(pair[0], pair[1] + 1))
    if not cores <= _at_start:
        raise ValueError(
            f"cores {sorted(cores - _at_start)} are not among those of this process {sorted(_at_start)}"
            + pta_error(ErrCode.VALUE)
        )
    os.sched_setaffinity(0, cores)


def reset_thread_affinity() -> None:
    """Lets the calling thread use all cores the process had at start."""
    os.sched_setaffinity(0, _at_start)
