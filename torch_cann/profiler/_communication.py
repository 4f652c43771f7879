"""communication.json and communication_matrix.json: time and bytes of collectives and messages, by step.

Bytes are what this rank sends. Ranks of a host read each other's memory, as cards do that are all joined with all, so each
peer gets its part directly; between hosts the same parts are counted, whichever way an algorithm takes them.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_cann.profiler._groups import communicator_of, number_of
from torch_cann.profiler._records import Event, Message, Recording

_TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
# MB from which a packet is large, by whether a network carries it: below, links do not reach their bandwidth. The limits
# of the packet analysis in MindStudio's msprof-analyze.
_LARGE = {"RDMA": 1.0}
_LARGE_INSIDE = 16.0
# Titles of operations -> names as HCCL has them.
_HCOM = {
    "all_reduce": "allReduce", "all_reduce_coalesced": "allReduce", "broadcast": "broadcast", "reduce": "reduce",
    "all_gather": "allGather", "_all_gather_base": "allGather", "all_gather_coalesced": "allGather",
    "all_gather_into_tensor_uneven": "allGather", "reduce_scatter": "reduceScatter",
    "_reduce_scatter_base": "reduceScatter", "reduce_scatter_tensor_uneven": "reduceScatter",
    "all_to_all": "alltoall", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "send": "send", "recv": "receive", "recv_any_source": "receive",
}  # fmt: skip
# Bytes that a member sends to each other one, of n members, when its input has b bytes.
_TO_EACH: dict[str, Callable[[float, int], float]] = {
    "allReduce": lambda b, n: 2 * b / n,
    "reduce": lambda b, n: b / n,
    "reduceScatter": lambda b, n: b / n,
    "alltoall": lambda b, n: b / n,
    "allGather": lambda b, n: b,
}
# The same for those where the root has another part: what the root sends to each, what others send to the root.
_BY_ROOT: dict[str, tuple[Callable[[float, int], float], Callable[[float, int], float]]] = {
    "broadcast": (lambda b, n: b, lambda b, n: 0),
    "scatter": (lambda b, n: b / n, lambda b, n: 0),
    "gather": (lambda b, n: 0, lambda b, n: b),
}


@dataclass(frozen=True)
class Operation:
    """A collective or message as it appears in the files.

    ``links`` are (source, destination) -> bytes. Both are ranks of the group, as everywhere in the files; what a rank
    keeps for itself is a link too.
    """

    event: Event
    kind: str
    name: str
    communicator: str
    group: str  # its number
    links: dict[tuple[int, int], float]

    @property
    def short_name(self) -> str:
        return self.name.partition("@")[0]

    @property
    def sent(self) -> dict[tuple[int, int], float]:
        """What this rank gave to others."""
        message = self.event.message
        return {(a, b): size for (a, b), size in self.links.items() if a == message.place and a != b} if message else {}

    def transport(self, link: tuple[int, int]) -> str:
        """LOCAL, HCCS inside a host, or RDMA. Global ranks are numbered host by host, as torchrun does."""
        if link[0] == link[1]:
            return "LOCAL"
        host = int(os.environ.get("LOCAL_WORLD_SIZE") or 1 << 30)
        first, second = (self.event.message.ranks[rank] // host for rank in link)
        return "HCCS" if first == second else "RDMA"

    @property
    def elapsed_ms(self) -> float:
        return self.event.duration / 1e6

    @property
    def wait_ms(self) -> float:
        """Waiting for other ranks; 0 where it was not measured, as of what this rank sends."""
        return min(self.event.waits.waited / 1e6, self.elapsed_ms) if self.event.waits else 0.0

    @property
    def synchronization_ms(self) -> float:
        """The part of the waiting before all ranks had come."""
        return min(self.event.waits.synchronization / 1e6, self.wait_ms) if self.event.waits else 0.0

    @property
    def transit_ms(self) -> float:
        """Moving and reducing."""
        if self.event.waits is None:
            return self.elapsed_ms
        return max(0.0, min(self.event.waits.ran / 1e6, self.elapsed_ms) - self.wait_ms)


def kind_of(event: Event) -> str:
    """HCCL's name of the operation, such as allReduce."""
    title = event.name.removeprefix("hccl:")
    return _HCOM.get(title, title)


def _links(kind: str, message: Message) -> dict[tuple[int, int], float]:
    me, n, partner = message.place, len(message.ranks), message.partner_place
    if kind == "send":
        return {(me, partner): message.sent_bytes}
    if kind == "receive":
        return {(partner, me): message.received_bytes} if partner >= 0 else {}
    if kind in _TO_EACH:
        return {(me, other): _TO_EACH[kind](message.sent_bytes, n) for other in range(n)}
    if kind in _BY_ROOT:
        from_root, to_root = _BY_ROOT[kind]
        if me == partner:
            return {(me, other): from_root(message.sent_bytes, n) for other in range(n) if other != me}
        return {(me, partner): to_root(message.sent_bytes, n)}
    return {}


def operation_of(event: Event, number: int) -> Operation:
    """``number`` is for the name of an operation whose message is not known."""
    kind, message = kind_of(event), event.message
    if message is None:  # the event that tells more fell out of the active steps
        return Operation(event, kind, f"hcom_{kind}__000_{number}_1@0", "", "0", {})
    communicator = communicator_of(message.group)
    group = number_of(communicator)
    name = f"hcom_{kind}__{group[-3:]:0>3}_{message.sequence}_1@{group}"
    links = {link: size for link, size in _links(kind, message).items() if size}
    return Operation(event, kind, name, communicator, group, links)


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


def _times(elapsed: float, transit: float, wait: float, synchronization: float) -> dict[str, float]:
    """Of times in ms. Idle is what is left: an operation waits in a queue while others of its group run."""
    return {
        "Elapse Time(ms)": elapsed,
        "Transit Time(ms)": transit,
        "Wait Time(ms)": wait,
        "Synchronization Time(ms)": synchronization,
        "Idle Time(ms)": max(0.0, elapsed - transit - wait),
        "Wait Time Ratio": _ratio(wait, wait + transit),
        "Synchronization Time Ratio": _ratio(synchronization, synchronization + transit),
    }


def _times_of(operation: Operation) -> dict[str, float]:
    times = _times(operation.elapsed_ms, operation.transit_ms, operation.wait_ms, operation.synchronization_ms)
    return {"Start Timestamp(us)": operation.event.start / 1000} | times


def _bandwidth(transport: str, sizes: list[float], milliseconds: float) -> dict[str, Any]:
    """Of packets of ``sizes`` MB in that time."""
    distribution: dict[str, list[float]] = {}
    for size in sizes:
        entry = distribution.setdefault(f"{size:.6f}", [0, 0.0])
        entry[0] += 1
        entry[1] += milliseconds / len(sizes)
    total = sum(sizes)
    large = sum(size >= _LARGE.get(transport, _LARGE_INSIDE) for size in sizes)
    return {
        "Transit Size(MB)": total,
        "Transit Time(ms)": milliseconds if sizes else 0.0,
        "Bandwidth(GB/s)": _ratio(total, milliseconds),
        "Large Packet Ratio": _ratio(large, len(sizes)),
        "Size Distribution": distribution,
    }


def _bandwidths(operation: Operation) -> dict[str, Any]:
    """By transport. SDMA is the engine behind HCCS, PCIE and SIO and has their sum."""
    sizes: dict[str, list[float]] = {transport: [] for transport in _TRANSPORTS}
    for link, size in operation.sent.items():
        sizes[operation.transport(link)].append(size / 1e6)
    sizes["SDMA"] = sizes["HCCS"]
    return {transport: _bandwidth(transport, some, operation.transit_ms) for transport, some in sizes.items()}


def _total(operations: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)")
    times = _times(*(sum(o["Communication Time Info"][key] for o in operations) for key in keys))
    bandwidths = {}
    for transport in _TRANSPORTS:
        parts = [o["Communication Bandwidth Info"][transport] for o in operations]
        distribution: dict[str, list[float]] = {}
        for part in parts:
            for size, (count, time) in part["Size Distribution"].items():
                known = distribution.setdefault(size, [0, 0.0])
                distribution[size] = [known[0] + count, known[1] + time]
        size, time = (sum(part[key] for part in parts) for key in ("Transit Size(MB)", "Transit Time(ms)"))
        bandwidths[transport] = {
            "Transit Size(MB)": size, "Transit Time(ms)": time, "Bandwidth(GB/s)": _ratio(size, time),
            "Size Distribution": distribution,
        }  # fmt: skip
    return {"Communication Time Info": times, "Communication Bandwidth Info": bandwidths}


def _by_step(recording: Recording) -> dict[str, dict[str, list[Operation]]]:
    """step -> "p2p" or "collective" -> operations."""
    steps: dict[str, dict[str, list[Operation]]] = {}
    for number, event in enumerate(recording.communication):
        operation = operation_of(event, number)
        step = steps.setdefault("step" if event.step is None else f"step{event.step}", {"p2p": [], "collective": []})
        step["p2p" if event.is_transfer else "collective"].append(operation)
    return steps


def communication(recording: Recording) -> dict[str, Any]:
    """What communication.json holds: time and bandwidth of each operation, and of all."""
    result: dict[str, Any] = {}
    for step, kinds in _by_step(recording).items():
        for kind, operations in kinds.items():
            entries = {
                operation.name: {
                    "Communication Time Info": _times_of(operation),
                    "Communication Bandwidth Info": _bandwidths(operation),
                }
                for operation in operations
            }
            if entries:
                entries["Total Op Info"] = _total(list(entries.values()))
            result.setdefault(step, {})[kind] = entries
    return result


def _link_rows(operations: list[Operation], link: tuple[int, int]) -> list[dict[str, Any]]:
    """Fastest first."""
    rows = []
    for operation in operations:
        size = operation.links[link] / 1e6
        rows.append(
            {
                "Transport Type": operation.transport(link),
                "Transit Size(MB)": size,
                "Transit Time(ms)": operation.transit_ms,
                "Bandwidth(GB/s)": _ratio(size, operation.transit_ms),
                "Op Name": operation.short_name,
            }
        )
    return sorted(rows, key=lambda row: -row["Bandwidth(GB/s)"])


def _picks(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The operations that the file shows of all on a link: the fastest, the median, the slowest three, and the sum."""
    size, time = (sum(row[key] for row in rows) for key in ("Transit Size(MB)", "Transit Time(ms)"))
    total = {
        "Transport Type": rows[0]["Transport Type"], "Transit Size(MB)": size, "Transit Time(ms)": time,
        "Bandwidth(GB/s)": _ratio(size, time),
    }  # fmt: skip
    slowest = {f"bottom{place}": rows[-place] for place in range(1, min(3, len(rows)) + 1)}
    return {"top1": rows[0], "middle": rows[len(rows) // 2], **slowest, "total": total}


def communication_matrix(recording: Recording) -> dict[str, Any]:
    """What communication_matrix.json holds: bytes and bandwidth of each link, by operation and group."""
    result: dict[str, Any] = {}
    for step, kinds in _by_step(recording).items():
        for kind, operations in kinds.items():
            shared: dict[tuple[str, str, tuple[int, int]], list[Operation]] = {}
            for operation in operations:
                for link in operation.links:
                    shared.setdefault((operation.kind.lower(), operation.group, link), []).append(operation)
            entries = result.setdefault(step, {}).setdefault(kind, {})
            for (operation_kind, group, link), some in shared.items():
                for pick, row in _picks(_link_rows(some, link)).items():
                    entries.setdefault(f"{operation_kind}-{pick}@{group}", {})[f"{link[0]}-{link[1]}"] = row
    return result
