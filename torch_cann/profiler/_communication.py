"""communication.json and communication_matrix.json: time and bytes of collectives and messages, by step.

Bytes are what this rank sends. Ranks of a host read each other's memory, as cards do that are all joined with all, so each
peer gets its part directly; between hosts the same parts are counted, whichever way an algorithm takes them.
"""

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from torch_cann.profiler._records import Event, Message, Recording

_TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
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
class _Operation:
    """A collective or message as it appears in the files; ``links`` are (source, destination) -> bytes, global ranks."""

    event: Event
    kind: str
    name: str
    group: str
    links: dict[tuple[int, int], float]

    @property
    def milliseconds(self) -> float:
        return self.event.duration / 1e6


def group_id(group: str) -> str:
    """A number for a process group, the same on all its ranks."""
    return str(zlib.crc32(group.encode()))


def kind_of(event: Event) -> str:
    """HCCL's name of the operation, such as allReduce."""
    title = event.name.removeprefix("hccl:")
    return _HCOM.get(title, title)


def groups() -> dict[str, dict[str, Any]]:
    """The process groups of this process, by the numbers that stand behind "@" in the names of operations."""
    if not (dist.is_available() and dist.is_initialized()):
        return {}
    return {
        group_id(name): {
            "group_name": "default_group" if group is dist.group.WORLD else name,
            "group_rank": dist.get_rank(group),
            "global_ranks": dist.get_process_group_ranks(group),
        }
        for group, name in dist.distributed_c10d._world.pg_names.items()
        if dist.get_rank(group) >= 0
    }


def _links(kind: str, message: Message) -> dict[tuple[int, int], float]:
    me, n, sent = message.me, len(message.ranks), message.sent_bytes
    others = [rank for rank in message.ranks if rank != me]
    if kind == "send":
        return {(me, message.partner): sent}
    if kind == "receive":
        return {(message.partner, me): message.received_bytes} if message.partner >= 0 else {}
    if kind in _TO_EACH:
        return {(me, other): _TO_EACH[kind](sent, n) for other in others}
    if kind in _BY_ROOT:
        from_root, to_root = _BY_ROOT[kind]
        if me == message.partner:
            return {(me, other): from_root(sent, n) for other in others}
        return {(me, message.partner): to_root(sent, n)}
    return {}


def _operation(event: Event, number: int) -> _Operation:
    kind, message = kind_of(event), event.message
    if message is None:  # the event that tells more fell out of the active steps
        return _Operation(event, kind, f"hcom_{kind}__000_{number}_1@0", "0", {})
    group = group_id(message.group)
    name = f"hcom_{kind}__{group[-3:]:0>3}_{message.sequence}_1@{group}"
    return _Operation(event, kind, name, group, {link: size for link, size in _links(kind, message).items() if size})


def _transport(link: tuple[int, int]) -> str:
    """Ranks are numbered host by host, as torchrun does."""
    host = int(os.environ.get("LOCAL_WORLD_SIZE") or 1 << 30)
    return "HCCS" if link[0] // host == link[1] // host else "RDMA"


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


def _times(start_us: float | None, elapsed_ms: float) -> dict[str, float]:
    """Waiting for late ranks and moving bytes are not told apart: all of it counts as transit."""
    start = {} if start_us is None else {"Start Timestamp(us)": start_us}
    return start | {
        "Elapse Time(ms)": elapsed_ms,
        "Transit Time(ms)": elapsed_ms,
        "Wait Time(ms)": 0.0,
        "Synchronization Time(ms)": 0.0,
        "Idle Time(ms)": 0.0,
        "Wait Time Ratio": 0.0,
        "Synchronization Time Ratio": 0.0,
    }


def _bandwidth(sizes: list[float], milliseconds: float) -> dict[str, Any]:
    """Of packets of ``sizes`` MB in that time."""
    distribution: dict[str, list[float]] = {}
    for size in sizes:
        entry = distribution.setdefault(f"{size:.6f}", [0, 0.0])
        entry[0] += 1
        entry[1] += milliseconds / len(sizes)
    total = sum(sizes)
    return {
        "Transit Size(MB)": total,
        "Transit Time(ms)": milliseconds if sizes else 0.0,
        "Bandwidth(GB/s)": _ratio(total, milliseconds),
        "Large Packet Ratio": 0.0,
        "Size Distribution": distribution,
    }


def _bandwidths(operation: _Operation) -> dict[str, Any]:
    """By transport. SDMA is the engine behind HCCS, PCIE and SIO and has their sum."""
    sizes: dict[str, list[float]] = {transport: [] for transport in _TRANSPORTS}
    for link, size in operation.links.items():
        if link[0] == operation.event.message.me:
            sizes[_transport(link)].append(size / 1e6)
    sizes["SDMA"] = sizes["HCCS"]
    return {transport: _bandwidth(some, operation.milliseconds) for transport, some in sizes.items()}


def _total(operations: list[dict[str, Any]]) -> dict[str, Any]:
    elapsed = sum(o["Communication Time Info"]["Elapse Time(ms)"] for o in operations)
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
    return {"Communication Time Info": _times(None, elapsed), "Communication Bandwidth Info": bandwidths}


def _by_step(recording: Recording) -> dict[str, dict[str, list[_Operation]]]:
    """step -> "p2p" or "collective" -> operations."""
    steps: dict[str, dict[str, list[_Operation]]] = {}
    for number, event in enumerate(recording.communication):
        operation = _operation(event, number)
        step = steps.setdefault("step" if event.step is None else f"step{event.step}", {"p2p": [], "collective": []})
        step["p2p" if operation.kind in ("send", "receive") else "collective"].append(operation)
    return steps


def communication(recording: Recording) -> dict[str, Any]:
    """What communication.json holds: time and bandwidth of each operation, and of all."""
    result: dict[str, Any] = {}
    for step, kinds in _by_step(recording).items():
        for kind, operations in kinds.items():
            entries = {
                operation.name: {
                    "Communication Time Info": _times(operation.event.start / 1000, operation.milliseconds),
                    "Communication Bandwidth Info": _bandwidths(operation),
                }
                for operation in operations
            }
            if entries:
                entries["Total Op Info"] = _total(list(entries.values()))
            result.setdefault(step, {})[kind] = entries
    return result


def _link_rows(operations: list[_Operation], link: tuple[int, int]) -> list[dict[str, Any]]:
    """Fastest first."""
    rows = []
    for operation in operations:
        size = operation.links[link] / 1e6
        rows.append(
            {
                "Transport Type": _transport(link),
                "Transit Size(MB)": size,
                "Transit Time(ms)": operation.milliseconds,
                "Bandwidth(GB/s)": _ratio(size, operation.milliseconds),
                "Op Name": operation.name.partition("@")[0],
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
            shared: dict[tuple[str, str, tuple[int, int]], list[_Operation]] = {}
            for operation in operations:
                for link in operation.links:
                    shared.setdefault((operation.kind.lower(), operation.group, link), []).append(operation)
            entries = result.setdefault(step, {}).setdefault(kind, {})
            for (operation_kind, group, link), some in shared.items():
                for pick, row in _picks(_link_rows(some, link)).items():
                    entries.setdefault(f"{operation_kind}-{pick}@{group}", {})[f"{link[0]}-{link[1]}"] = row
    return result
