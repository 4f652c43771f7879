"""What trace_view.json has beyond PyTorch's trace of the host: the card's streams, communication, and how they overlap.

Trace viewers want numbers for processes and threads, and names of them in events of their own.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from torch_cann.profiler._groups import communicator_of, number_of
from torch_cann.profiler._intervals import Intervals, difference, union
from torch_cann.profiler._records import Event, Recording, shapes_of

# Process numbers of the tracks, above those that Linux gives (2**22).
_HARDWARE, _COMMUNICATION, _OVERLAP = (2**22 + number for number in range(3))
_PROCESSES = {_HARDWARE: "Ascend Hardware", _COMMUNICATION: "Communication", _OVERLAP: "Overlap Analysis"}
_OVERLAP_TRACKS = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")


def _process_names(device: int) -> Iterator[dict[str, Any]]:
    for pid, name in _PROCESSES.items():
        for key, args in (
            ("process_name", {"name": name}),
            ("process_labels", {"labels": f"NPU {device}"}),
            ("process_sort_index", {"sort_index": pid}),
        ):
            yield {"ph": "M", "name": key, "pid": pid, "tid": 0, "args": args}


def _thread_names(pid: int, names: dict[int, str]) -> Iterator[dict[str, Any]]:
    for tid, name in names.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _interval(
    name: str, category: str, pid: int, tid: int, start_us: float, ns: int, args: Any = None
) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start_us, "dur": ns / 1000,
            "args": args or {}}  # fmt: skip


class _Host:
    """Where PyTorch's trace shows an operator: its process and thread."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self._base = trace.get("baseTimeNanoseconds", 0)
        self._places = {
            (event["name"], round(event["ts"] * 1000)): (event["pid"], event["tid"])
            for event in trace["traceEvents"]
            if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation")
        }

    def us(self, ns: int) -> float:
        return (ns - self._base) / 1000

    def place(self, event: Event) -> tuple[int, int] | None:
        return self._places.get((event.name, event.start - self._base))


def _flow(number: int, host: tuple[int, int], device: tuple[int, int], us: float) -> Iterator[dict[str, Any]]:
    """The arrow from an operator to its kernel."""
    for phase, (pid, tid) in (("s", host), ("f", device)):
        yield {"ph": phase, "bp": "e", "cat": "async_npu", "name": "torch_to_npu", "id": number, "pid": pid, "tid": tid,
               "ts": us}  # fmt: skip


def _group(event: Event) -> str:
    return "0" if event.message is None else number_of(communicator_of(event.message.group))


def _tracks(recording: Recording) -> tuple[dict[int, str], dict[int, str], dict[str, int]]:
    """Names of the tracks of streams and of groups, and the track of each group."""
    streams = {event.stream: f"Stream {event.stream}" for event in recording.kernels}
    ids = dict.fromkeys(map(_group, recording.communication))
    numbers = {group: number for number, group in enumerate(ids)}
    return streams, {number: f"Group {group} Communication" for group, number in numbers.items()}, numbers


def _overlap(recording: Recording, host: _Host) -> Iterator[dict[str, Any]]:
    computing = recording.covered_by(recording.kernels)
    communication = recording.covered_by(recording.communication)
    busy = union([*computing, *communication])
    free = difference([(busy[0][0], busy[-1][1])], busy) if busy else []
    tracks: Iterable[Intervals] = (computing, communication, difference(communication, computing), free)
    for tid, (name, intervals) in enumerate(zip(_OVERLAP_TRACKS, tracks, strict=True)):
        for start, end in intervals:
            yield _interval(name, "overlap", _OVERLAP, tid, host.us(start), end - start)


def add_device_tracks(trace: dict[str, Any], recording: Recording, device: int) -> None:
    """Adds to PyTorch's trace a track for each stream and group, what overlaps, and arrows from the host's operators."""
    host = _Host(trace)
    streams, group_names, groups = _tracks(recording)
    added = list(_process_names(device))
    for pid, names in (
        (_HARDWARE, streams),
        (_COMMUNICATION, group_names),
        (_OVERLAP, dict(enumerate(_OVERLAP_TRACKS))),
    ):
        added.extend(_thread_names(pid, names))
    for number, event in enumerate((*recording.kernels, *recording.communication)):
        args: dict[str, Any] = {"Step": event.step}
        if event.is_communication:
            pid, tid, category = _COMMUNICATION, groups[_group(event)], "communication"
            if event.message is not None:
                args |= {"group": event.message.group, "size(Byte)": event.message.sent_bytes}
        else:
            pid, tid, category = _HARDWARE, event.stream, "kernel"
            args["Input Shapes"] = shapes_of(event)
        added.append(_interval(event.name, category, pid, tid, host.us(event.start), event.duration, args))
        place = host.place(event)
        if place is not None:
            added.extend(_flow(number, place, (pid, tid), host.us(event.start)))
    added.extend(_overlap(recording, host))
    trace["traceEvents"].extend(added)
