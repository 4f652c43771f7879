"""Batches brought to the device ahead of their use, by a thread of their own on a stream of their own."""

import atexit
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torch_cann.recipes.train._device import device_module


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


class DevicePrefetcher:
    """Iterates over ``place(batch)`` for the batches of ``source``, up to ``depth`` of them ahead.

    ``source`` is read and ``place`` is called in a thread, on a stream of their own; a batch is handed over once the
    consumer's stream waits for that stream's copies. What the thread raises is raised here, in its turn. close(), or
    leaving the loop early, ends the thread.

    Args:
        source: batches on the host. Its iterator is made by the calling thread, since it may start processes.
        place: moves one batch to the device.
        tensors: lists the tensors of a placed batch, so that the allocator learns which stream uses them.
    """

    def __init__(
        self,
        source: Iterable[Any],
        place: Callable[[Any], Any],
        tensors: Callable[[Any], Iterable[torch.Tensor]],
        device: torch.device,
        depth: int,
    ) -> None:
        self._source = iter(source)
        self._place = place
        self._tensors = tensors
        self._device = device
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
        self._closed = threading.Event()
        self._stream = torch.Stream(device) if device.type != "cpu" else None
        self._thread = threading.Thread(target=self._run, name="device-prefetch", daemon=True)
        # A thread that is still inside an operator when the interpreter ends takes the process down with it.
        atexit.register(self._at_exit)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._stream is not None:
                module = device_module(self._device)
                module.set_device(self._device)
                module.set_stream(self._stream)
            for batch in self._source:
                batch = self._place(batch)
                event = self._stream.record_event() if self._stream is not None else None
                if not self._put((batch, event)):
                    return
            self._put(_END)
        except BaseException as error:  # handed to the consumer, which raises it
            self._put(_Failure(error))

    def _put(self, item: Any) -> bool:
        """Waits for room in the queue; False when the consumer has gone."""
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[Any]:
        try:
            while (item := self._ready.get()) is not _END:
                if isinstance(item, _Failure):
                    raise item.error
                batch, event = item
                if event is not None:
                    current = device_module(self._device).current_stream(self._device)
                    current.wait_event(event)
                    for tensor in self._tensors(batch):
                        tensor.record_stream(current)
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Ends the thread and drops what it has fetched."""
        self._end(timeout=None)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self._end(timeout=5)  # a source that gives nothing any more does not hold the process up

    def _end(self, timeout: float | None) -> None:
        self._closed.set()
        while not self._ready.empty():
            self._ready.get_nowait()
        self._thread.join(timeout)
