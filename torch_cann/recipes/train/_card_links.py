"""Copies between the cards of one process that hold up neither card's computing."""

from typing import Any

import torch


class Arriving:
    """A value on its way to ``device``, or there already."""

    def __init__(self, value: Any, arrived: torch.npu.Event | None = None) -> None:
        self._value, self._arrived = value, arrived

    def take(self) -> Any:
        """The value. What is queued from here on on its card's current stream waits for it."""
        if self._arrived is not None:
            stream = torch.npu.current_stream(self._value.device)
            stream.wait_event(self._arrived)
            self._value.record_stream(stream)
        return self._value


class CardLinks:
    """Sends tensors from card to card on a pair of streams for each direction, made when first used.

    A copy on the cards' computing streams would be a rendezvous: the sender's next kernel waits until the receiver has
    done all that it was given before.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[torch.device, torch.device], tuple[torch.npu.Stream, torch.npu.Stream]] = {}

    def send(self, value: Any, to: torch.device) -> Arriving:
        """Begins to copy a tensor, without its graph, once its card's current stream has made it.

        What is no tensor, or on that device already, is passed on as it is.
        """
        if not isinstance(value, torch.Tensor):
            return Arriving(value)
        value = value.detach()
        if value.device == to:
            return Arriving(value)
        if value.device.type != "npu" or to.type != "npu":
            return Arriving(value.to(to))
        leaving, coming = self._pair(value.device, to)
        leaving.wait_stream(torch.npu.current_stream(value.device))
        with torch.npu.stream(leaving), torch.npu.stream(coming):
            copy = value.to(to)
        value.record_stream(leaving)
        arrived = torch.npu.Event()
        arrived.record(coming)
        return Arriving(copy, arrived)

    def _pair(self, source: torch.device, to: torch.device) -> tuple[torch.npu.Stream, torch.npu.Stream]:
        if (source, to) not in self._streams:
            self._streams[source, to] = torch.npu.Stream(source), torch.npu.Stream(to)
        return self._streams[source, to]
