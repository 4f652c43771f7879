"""Events of PyTorch's profiler, nested and sorted into what the tables need: operators, kernels, memory, steps."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

SET_STREAM = "npu::set_stream"  # see torch_cann/npu/streams.py
COMMUNICATION = "hccl:"
_STEP = re.compile(r"ProfilerStep#(\d+)")
_NPU = 20  # c10::DeviceType::PrivateUse1
# Operators that only make or describe memory: no kernel runs for them on hardware either.
_NO_KERNEL = {"aten::empty", "aten::empty_strided", "aten::resize_", "aten::set_", "aten::detach", "aten::detach_"}


@dataclass
class Event:
    """An interval on one host thread; times in ns."""

    name: str
    start: int
    end: int
    thread: int
    shapes: list[Any]
    dtypes: list[str]
    is_python: bool
    is_annotation: bool
    parent: "Event | None" = None
    children_ns: int = 0
    inside_kernel: bool = False
    stream: int = 0
    step: int | None = None

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def is_communication(self) -> bool:
        return self.name.startswith(COMMUNICATION)

    @property
    def is_operator(self) -> bool:
        return "::" in self.name and not (self.is_python or self.is_annotation or self.name.startswith(SET_STREAM))

    @property
    def is_kernel(self) -> bool:
        """Whether this is work of the card as hardware would do it: the outermost operator with a device kernel."""
        return not self.inside_kernel and self.is_operator and _runs_a_kernel(self.name)

    def call_stack(self) -> str:
        frames, event = [], self.parent
        while event is not None:
            if event.is_python:
                frames.append(event.name)
            event = event.parent
        return ";\n".join(frames)


@dataclass(frozen=True)
class Memory:
    """A block taken (bytes above 0) or given back at ``time`` ns, and the card's totals then, in bytes."""

    time: int
    address: int
    bytes: int
    device: int
    allocated: int
    reserved: int
    operator: str


@cache
def _runs_a_kernel(name: str) -> bool:
    """Whether an operator has a kernel for the device: others only call operators, or describe memory."""
    if name in _NO_KERNEL:
        return False
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), operator, None) if operator.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return not any(o.is_view for o in overloads) and any(
        torch._C._dispatch_has_kernel_for_dispatch_key(o.name(), "PrivateUse1") for o in overloads
    )


def _nest(events: list[Event]) -> None:
    """Sets parents and what is inside; ``events`` are one thread's, sorted by start, longer ones first."""
    open_events: list[Event] = []
    for event in events:
        while open_events and open_events[-1].end <= event.start:
            open_events.pop()
        if open_events:
            event.parent = open_events[-1]
            event.parent.children_ns += event.duration
            event.inside_kernel = event.parent.inside_kernel or event.parent.is_kernel
        open_events.append(event)


def _place(events: list[Event], steps: list[Event]) -> None:
    """Sets the stream, from the marks that switching leaves in the thread, and the step that is running."""
    stream, position = 0, 0
    for event in events:
        if event.name.startswith(SET_STREAM):
            stream = int(event.name.rpartition(" ")[2])
        event.stream = stream
        while position < len(steps) and steps[position].end <= event.start:
            position += 1
        if position < len(steps) and steps[position].start <= event.start:
            event.step = int(_STEP.match(steps[position].name)[1])


@dataclass
class Recording:
    events: list[Event] = field(default_factory=list)
    steps: list[Event] = field(default_factory=list)

    @property
    def operators(self) -> list[Event]:
        return [event for event in self.events if event.is_operator]

    @property
    def kernels(self) -> list[Event]:
        return [event for event in self.events if event.is_kernel]

    @property
    def communication(self) -> list[Event]:
        return [event for event in self.events if event.is_communication]

    @classmethod
    def of(cls, kineto_events: Iterable[Any]) -> "Recording":
        threads: dict[int, list[Event]] = {}
        for raw in kineto_events:
            if raw.is_hidden_event() or raw.name() == "[memory]":
                continue
            threads.setdefault(raw.start_thread_id(), []).append(
                Event(
                    raw.name(), raw.start_ns(), raw.end_ns(), raw.start_thread_id(), list(raw.shapes()),
                    list(raw.dtypes()), raw.is_python_function(), raw.is_user_annotation(),
                )
            )
        everything = [event for events in threads.values() for event in events]
        steps = sorted((e for e in everything if _STEP.match(e.name)), key=lambda e: e.start)
        for events in threads.values():
            events.sort(key=lambda e: (e.start, -e.end))
            _nest(events)
            _place(events, steps)
        everything.sort(key=lambda e: e.start)
        return cls(everything, steps)


def memory_of(trace: dict[str, Any], recording: Recording) -> list[Memory]:
    """What npu memory did, from PyTorch's trace: only there are the totals."""
    base = trace.get("baseTimeNanoseconds", 0)
    facts = sorted(
        (base + round(event["ts"] * 1000), event["args"])
        for event in trace["traceEvents"]
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == _NPU
    )
    records, position, running = [], 0, []
    operators = recording.operators
    for time, args in facts:
        while position < len(operators) and operators[position].start <= time:
            running.append(operators[position])
            position += 1
        running = [operator for operator in running if operator.end > time]
        records.append(
            Memory(
                time, args["Addr"], args["Bytes"], args["Device Id"], args["Total Allocated"], args["Total Reserved"],
                running[-1].name if running else "",
            )  # fmt: skip
        )
    return records
