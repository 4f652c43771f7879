"""The stream sanitizer: reports accesses to a card's memory that no event orders.

Kernels run at once and in program order here, so a missing ``wait_stream()`` or ``record_stream()`` never spoils a
result; on hardware it does, now and then. While the sanitizer is on, each access is compared with earlier ones on other
streams. A race is an access to bytes that another stream wrote, or a write to bytes that another stream read, which no
event, wait or synchronisation orders; also when the bytes were freed in between and belong to another tensor by then.

    with torch_cann.sanitizer.StreamSanitizer() as sanitizer:
        train_step()
    print(sanitizer.races)

``TORCH_CANN_SANITIZER=1`` has it on for the whole process and raises at the first race, ``warn`` warns of each.

Operators on npu tensors, copies and collectives of hccl are seen; memory of the host is not. It slows small operators
down several times; when off, it costs nothing.
"""

import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_cann import _C
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["Access", "Race", "StreamSanitizer"]

_TORCH = str(Path(torch.__file__).parent)
_MAX_FRAMES = 12


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    operator: str  # "aten::add", "hccl:all_reduce"
    stream: str  # "stream 3 of npu:0"
    write: bool
    stack: traceback.StackSummary  # outermost frame first

    def __str__(self) -> str:
        frames = list(self.stack)
        own = [frame for frame in frames if not frame.filename.startswith(_TORCH)] or frames
        lines = "".join(traceback.StackSummary.from_list(own[-_MAX_FRAMES:]).format())
        return f"{self.operator} on {self.stream}, {'writing' if self.write else 'reading'}\n{lines}".rstrip()


@dataclass(frozen=True)
class Race:
    """Two accesses to the same ``size`` bytes at ``address`` that nothing orders, the later one first."""

    now: Access
    before: Access
    reused: bool  # the memory was freed in between and is another tensor's now
    address: int
    size: int

    def __str__(self) -> str:
        if self.reused:
            said = (
                f"{self.now.operator} uses memory of a freed tensor that {self.before.operator} may still be using on "
                f"another stream"
            )
            advice = f"call tensor.record_stream() for {self.before.stream} before the tensor is dropped"
        else:
            said = f"{self.now.operator} and {self.before.operator} use the same memory, and no event orders them"
            advice = f"let {self.now.stream} wait for {self.before.stream}: wait_stream(), or record() and wait()"
        return (
            f"stream sanitizer: {said} ({self.size} bytes at {self.address:#x}); {advice}.\n"
            f"Now: {self.now}\nBefore: {self.before}"
        )

    def _sites(self) -> tuple[Any, ...]:
        """What makes two reports the same: operators and lines."""
        lines = [[(frame.filename, frame.lineno) for frame in side.stack] for side in (self.now, self.before)]
        return (self.reused, self.now.operator, self.before.operator, *map(tuple, lines))


def _access(side: dict[str, Any]) -> Access:
    frames = [traceback.FrameSummary(f["filename"], f["line"], f["name"]) for f in reversed(side["frames"])]
    stream = f"stream {side['stream']}" if side["stream"] else "the default stream"
    summary = traceback.StackSummary.from_list(frames)
    return Access(side["operator"], f"{stream} of npu:{side['device']}", side["write"], summary)


class StreamSanitizer:
    """Context manager that watches all threads of the process; ``races`` lists what was found, each pair of lines once.

    Args:
        on_race: "collect" only lists; "warn" also warns (UserWarning); "raise" raises RuntimeError in the operator that
            makes the later access. ValueError for others.

    Entering it starts without knowledge of earlier accesses. Raises RuntimeError when another one is active, and in a
    dry run, whose tensors have no memory.
    """

    def __init__(self, on_race: str = "collect") -> None:
        if on_race not in ("collect", "warn", "raise"):
            raise ValueError(
                f'on_race must be "collect", "warn" or "raise", but is {on_race!r}' + pta_error(ErrCode.VALUE)
            )
        self.on_race = on_race
        self.races: list[Race] = []
        self._known: set[tuple[Any, ...]] = set()

    def enable(self) -> None:
        if _C._npu_sanitizerIsOn():
            raise RuntimeError(
                "the stream sanitizer is on already; leave the other one first" + pta_error(ErrCode.PARAM)
            )
        if _C._sim.is_dry():
            raise RuntimeError(
                "the stream sanitizer compares memory, and tensors of a dry run have none" + pta_error(ErrCode.PARAM)
            )
        _C._npu_sanitizerEnable(self._report)

    def disable(self) -> None:
        _C._npu_sanitizerDisable()

    def _report(self, now: dict[str, Any], before: dict[str, Any], reused: bool, address: int, size: int) -> str | None:
        """Called by the runtime; a text that is returned is raised."""
        race = Race(_access(now), _access(before), reused, address, size)
        sites = race._sites()
        if sites not in self._known:
            self._known.add(sites)
            self.races.append(race)
            if self.on_race == "warn":
                warnings.warn(str(race), stacklevel=2)
        return str(race) if self.on_race == "raise" else None

    def __enter__(self) -> "StreamSanitizer":
        self.enable()
        return self

    def __exit__(self, *exc: object) -> None:
        self.disable()
