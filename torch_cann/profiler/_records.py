"""Events of PyTorch's profiler, nested and sorted into what the tables need: operators, kernels, memory, steps."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from torch_cann import _C
from torch_cann.profiler._intervals import Intervals, union

SET_STREAM = "npu::set_stream"  # see torch_cann/npu/streams.py
COMMUNICATION = "hccl:"
_COALESCED = "hccl:coalesced"  # waits for operations that have events of their own
_PARAMETERS = "record_param_comms"  # see csrc/distributed/comms_record.h
_STEP = re.compile(r"ProfilerStep#(\d+)")
_NPU = 20  # c10::DeviceType::PrivateUse1
_COLLECTIVES = ("c10d", "_c10d_functional")  # what runs for these has events of its own
# Operators that only make or describe memory: no kernel runs for them on hardware either.
_NO_KERNEL = {"aten::empty", "aten::empty_strided", "aten::resize_", "aten::set_", "aten::detach", "aten::detach_"}


# Bytes of an element, by the names of c10.
_BYTES = {
    name: size
    for size, names in {
        1: "Byte Char Bool Float8_e5m2 Float8_e4m3fn", 2: "Short Half BFloat16 UInt16", 4: "Int Float UInt32 ComplexHalf",
        8: "Long Double UInt64 ComplexFloat", 16: "ComplexDouble",
    }.items()
    for name in names.split()
}  # fmt: skip


@dataclass(frozen=True)
class Message:
    """What a collective or transfer moves between whom. Ranks are global ones."""

    group: str
    sequence: int  # counts the operations of the group, transfers apart; the same on all ranks
    me: int
    ranks: tuple[int, ...]
    partner: int  # of a transfer, or the root; -1 if there is none
    sent_bytes: int
    received_bytes: int
    dtype: str = ""  # by c10's name
    elements: int = 0

    @property
    def place(self) -> int:
        """This rank, in the group."""
        return self.ranks.index(self.me)

    @property
    def partner_place(self) -> int:
        """The partner, in the group; -1 if there is none."""
        return self.ranks.index(self.partner) if self.partner in self.ranks else -1


@dataclass(frozen=True)
class Waits:
    """What this rank did from the time an operation left the queue of its group until it was done; ns."""

    ran: int
    waited: int  # of that, for other ranks
    synchronization: int  # of that, until all had come


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
    message: Message | None = None
    waits: Waits | None = None
    sequence: int = -1  # autograd's number of the operator
    forward_thread: int = 0  # where the operator ran that this one is the backward of

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def is_communication(self) -> bool:
        return self.name.startswith(COMMUNICATION) and self.name != _COALESCED

    @property
    def is_transfer(self) -> bool:
        return self.name.removeprefix(COMMUNICATION) in ("send", "recv", "recv_any_source")

    @property
    def is_operator(self) -> bool:
        return "::" in self.name and not (self.is_python or self.is_annotation or self.name.startswith(SET_STREAM))

    @property
    def is_kernel(self) -> bool:
        """Whether this is work of the card as hardware would do it: the outermost operator with a device kernel."""
        return not self.inside_kernel and self.is_operator and _runs_a_kernel(self.name)

    @property
    def number(self) -> int:
        """Of an event that is a step."""
        return int(_STEP.match(self.name)[1])

    def call_frames(self) -> tuple[str, ...]:
        """Python functions that were running, the innermost first."""
        frames, event = [], self.parent
        while event is not None:
            if event.is_python:
                frames.append(event.name)
            event = event.parent
        return tuple(frames)


def shapes_of(event: Event) -> str:
    """As tables and trace show them: "16,64;64,32"."""
    return ";".join(",".join(map(str, shape)) for shape in event.shapes)


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
    if namespace in _COLLECTIVES:
        return False
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
            event.step = steps[position].number


def _ranks_of(meta: dict[str, str]) -> tuple[int, ...]:
    """Of the group that ``meta`` is about, while it exists if PyTorch's description does not say."""
    size, start, stride = (int(meta.get(key, -1)) for key in ("Group size", "Global rank start", "Global rank stride"))
    if stride > 0 or size == 1:
        return tuple(start + i * stride for i in range(size))
    groups = torch.distributed.distributed_c10d._world.pg_names.items()
    name = meta["Process Group Name"].strip('"')
    found = next((group for group, known in groups if known == name), None)
    return tuple(range(size)) if found is None else tuple(torch.distributed.get_process_group_ranks(found))


def _message(meta: dict[str, str]) -> Message:
    ranks, place = _ranks_of(meta), int(meta["Rank"])
    element = _BYTES.get(meta["dtype"].strip('"'), 1)
    return Message(
        meta["Process Group Name"].strip('"'), int(meta.get("Seq", 0)), torch.distributed.get_rank(), ranks,
        ranks[place] if 0 <= place < len(ranks) else -1,
        element * int(meta["In msg nelems"]), element * int(meta["Out msg nelems"]), meta["dtype"].strip('"'),
        max(int(meta["In msg nelems"]), int(meta["Out msg nelems"])),
    )  # fmt: skip


def _add_messages(events: list[Event], parameters: list[tuple[int, int, dict[str, str]]]) -> None:
    """Gives each operation of a thread what PyTorch's event round its start tells of it. Both are sorted by start."""
    position = 0
    for event in events:
        if event.is_communication:
            while position < len(parameters) and parameters[position][1] < event.start:
                position += 1
            if position < len(parameters) and parameters[position][0] <= event.start:
                event.message = _message(parameters[position][2])


def _add_waits(operations: Iterable[Event]) -> None:
    """Gives operations that are done, and that have a message, what they waited for other ranks."""
    known = {entry[:3]: Waits(*entry[3:]) for entry in _C._distributed_c10d._waits()}
    for event in operations:
        if event.message is not None:
            event.waits = known.get((event.message.group, event.is_transfer, event.message.sequence))


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

    @staticmethod
    def covered_by(events: Iterable[Event]) -> Intervals:
        """The time in which any of ``events`` runs."""
        return union((event.start, event.end) for event in events)

    @classmethod
    def of(cls, kineto_events: Iterable[Any]) -> "Recording":
        threads: dict[int, list[Event]] = {}
        parameters: dict[int, list[tuple[int, int, dict[str, str]]]] = {}
        for raw in kineto_events:
            if raw.is_hidden_event() or raw.name() == "[memory]":
                continue
            if raw.name() == _PARAMETERS:
                about = (raw.start_ns(), raw.end_ns(), raw.extra_meta())
                parameters.setdefault(raw.start_thread_id(), []).append(about)
                continue
            threads.setdefault(raw.start_thread_id(), []).append(
                Event(
                    raw.name(),
                    raw.start_ns(),
                    raw.end_ns(),
                    raw.start_thread_id(),
                    list(raw.shapes()),
                    list(raw.dtypes()),
                    raw.is_python_function(),
                    raw.is_user_annotation(),
                    sequence=raw.sequence_nr(),
                    forward_thread=raw.fwd_thread_id(),
                )
            )
        everything = [event for events in threads.values() for event in events]
        steps = sorted((e for e in everything if _STEP.match(e.name)), key=lambda e: e.start)
        for thread, events in threads.items():
            events.sort(key=lambda e: (e.start, -e.end))
            _nest(events)
            _place(events, steps)
            _add_messages(events, sorted(parameters.get(thread, []), key=lambda about: about[0]))
        everything.sort(key=lambda e: e.start)
        recording = cls(everything, steps)
        _add_waits(recording.communication)
        return recording


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
                time,
                args["Addr"],
                args["Bytes"],
                args["Device Id"],
                args["Total Allocated"],
                args["Total Reserved"],
                running[-1].name if running else "",
            )
        )
    return records


def lives_of(memory: Iterable[Memory]) -> list[tuple[Memory, Memory | None]]:
    """Each block that was taken, with its end where that is in the recording too."""
    taken: dict[int, int] = {}
    lives: list[tuple[Memory, Memory | None]] = []
    for record in memory:
        if record.bytes > 0:
            taken[record.address] = len(lives)
            lives.append((record, None))
        elif record.address in taken:
            place = taken.pop(record.address)
            lives[place] = (lives[place][0], record)
    return lives
