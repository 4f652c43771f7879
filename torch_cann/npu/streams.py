"""Streams and events of the cards, subclasses of torch.Stream and torch.Event.

Kernels run at once and in program order, so a stream that is asked is always idle and a wait returns at once. What
remains is identity, priority, and the time that events record.
"""

from typing import Any

import torch

from torch_cann import _C
from torch_cann._refused import not_implemented
from torch_cann.npu._device import _lazy_init, device
from torch_cann.npu._utils import _get_device_index

__all__ = [
    "Event",
    "ExternalEvent",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "SyncLaunchStream",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]


def _expect(kind: type, value: Any) -> Any:
    """Returns ``value``. torch.Stream and torch.Event take whatever they get for a stream or an event and read it."""
    if not isinstance(value, kind):
        raise TypeError(f"expected a torch.{kind.__name__}, but got {type(value).__name__}")
    return value


class Stream(torch.Stream):
    """A queue of work of one card.

    Args:
        device: the card; None or a negative index mean the current one.
        priority: below 0 for a high-priority stream. Streams come from pools of STREAMS_PER_DEVICE, one per card and
            priority.

    The keywords stream_id, device_index and device_type name an existing stream instead.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if not kwargs:
            _lazy_init()
            index = _get_device_index(device, optional=True)
            stream_id, index, device_type = _C._npu_getStreamFromPool(index, priority)
            kwargs = {"stream_id": stream_id, "device_index": index, "device_type": device_type}
        return super().__new__(cls, **kwargs)

    @property
    def npu_stream(self) -> int:
        """The handle, for ExternalStream."""
        return self.stream_id

    @property
    def priority(self) -> int:
        return _C._npu_streamPriority(self)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest priority."""
        return 0, -1

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records ``event``, or a new one, here and returns it."""
        event = Event() if event is None else _expect(torch.Event, event)
        event.record(self)
        return event

    def wait_event(self, event: torch.Event) -> None:
        """Later work of this stream follows what ``event`` recorded."""
        super().wait_event(_expect(torch.Event, event))

    def wait_stream(self, stream: torch.Stream) -> None:
        """Later work of this stream follows what ``stream`` has been given so far."""
        super().wait_stream(_expect(torch.Stream, stream))

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Accepted: where the data is prepared makes no difference to kernels that run at once."""

    def __repr__(self) -> str:
        return f"<torch_npu.npu.Stream device={self.device} npu_stream={self.npu_stream:#x}>"

    __eq__ = torch.Stream.__eq__
    __hash__ = torch.Stream.__hash__


class SyncLaunchStream(Stream):
    """A stream without task queue in torch_npu. There is no task queue here, so it is a stream like any other."""


class ExternalStream(Stream):
    """The stream whose handle is ``stream_ptr``, a value that ``Stream.npu_stream`` gave for ``device``."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> "ExternalStream":
        index = _get_device_index(device, optional=True)
        _, index, device_type = _C._npu_getDefaultStream(index)
        return super().__new__(cls, stream_id=stream_ptr, device_index=index, device_type=device_type)


class Event(torch.Event):
    """A point in a stream's work.

    Args:
        enable_timing: needed for elapsed_time(), which answers in milliseconds of the host's clock.
        blocking: accepted; synchronize() never has to wait.
        interprocess: raises NotImplementedError if True.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        if interprocess:
            raise not_implemented("Event(interprocess=True)", "synchronise the processes with torch.distributed")
        return super().__new__(cls, device="npu", enable_timing=enable_timing, blocking=blocking)

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> "Event":
        raise not_implemented("Event.from_ipc_handle()", "synchronise the processes with torch.distributed")

    def ipc_handle(self) -> bytes:
        raise not_implemented("Event.ipc_handle()", "synchronise the processes with torch.distributed")

    def record(self, stream: torch.Stream | None = None) -> None:
        super().record(current_stream() if stream is None else _expect(torch.Stream, stream))

    def wait(self, stream: torch.Stream | None = None) -> None:
        super().wait(current_stream() if stream is None else _expect(torch.Stream, stream))

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds from this event to ``end_event``; both must be made with enable_timing and recorded."""
        return _C._npu_elapsedTime(self, end_event)

    @property
    def npu_event(self) -> int:
        """The handle; 0 before the first record()."""
        return self.event_id

    def __repr__(self) -> str:
        return f"<torch_npu.npu.Event {self.npu_event:#x}>" if self.npu_event else "<torch_npu.npu.Event uninitialized>"


class ExternalEvent(Event):
    """An event that captured graphs can wait for and reset."""

    def __new__(cls) -> "ExternalEvent":
        return super().__new__(cls)

    def reset(self, stream: torch.Stream | None = None) -> None:
        """Makes the event usable anew. It never blocks anyone here, so nothing has to be undone."""


def _from_tuple(stream: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = stream
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: Any = None) -> Stream:
    """The stream of this thread on ``device``."""
    _lazy_init()
    return _from_tuple(_C._npu_getCurrentStream(_get_device_index(device, optional=True)))


def default_stream(device: Any = None) -> Stream:
    _lazy_init()
    return _from_tuple(_C._npu_getDefaultStream(_get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` and its card current. None changes nothing."""
    if stream is not None:
        _C._npu_setStream(stream)
        if torch.autograd._profiler_enabled():  # a mark by which the profiler tells operators' streams
            with torch.autograd.profiler.record_function(f"npu::set_stream {stream.stream_id}"):
                pass


class StreamContext:
    """Context manager: ``stream`` and its card are current inside. None changes nothing.

    On leaving, both the card and the stream that was current on the stream's card come back.
    """

    def __init__(self, stream_ctx: torch.Stream | None) -> None:
        self.stream = stream_ctx
        self._previous: list[tuple[Stream, int]] = []  # a stack: one context may be entered again inside itself

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous.append((current_stream(self.stream.device), _C._npu_getDevice()))
            set_stream(self.stream)

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            stream, index = self._previous.pop()
            set_stream(stream)
            _C._npu_setDevice(index)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


for _type in (Stream, SyncLaunchStream, ExternalStream, Event, ExternalEvent):
    _type.__module__ = "torch_npu.npu"
