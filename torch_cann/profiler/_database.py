"""ExportType.Db: the profile as SQLite files, ascend_pytorch_profiler_<rank>.db and analysis.db.

There is no layer of CANN between operators and kernels here, so CANN_API and the tables of hardware counters are left out.
"""

import contextlib
import json
import os
import socket
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from torch_cann.profiler import _communication, _kernels
from torch_cann.profiler import _database_schema as schema
from torch_cann.profiler._communication import Operation
from torch_cann.profiler._groups import global_rank
from torch_cann.profiler._records import Event, Memory, Recording, lives_of, shapes_of

Rows = Iterable[tuple[Any, ...]]
_NO_SHAPE = "N/A"


class _Numbers:
    """Numbers for what is written once and referred to from elsewhere, from ``first`` on."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.of: dict[Any, int] = {}

    def __call__(self, what: Any) -> int:
        return self.of.setdefault(what, self._first + len(self.of))


def _write(path: Path, tables: dict[str, str], rows: dict[str, Rows], indexes: dict[str, str]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for table, columns in tables.items():
            typed = [column if " " in column else f"{column} INTEGER" for column in columns.split(", ")]
            database.execute(f"CREATE TABLE {table} ({', '.join(typed)})")
            places = ", ".join("?" * len(typed))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", rows.get(table, ()))
        for name, place in indexes.items():
            database.execute(f"CREATE INDEX {name} ON {place}")


class _Profile:
    """The rows of ascend_pytorch_profiler_<rank>.db. Texts and call stacks get their numbers as rows are made."""

    def __init__(self, recording: Recording, device: int) -> None:
        self.recording, self.device = recording, device
        self.string_id = _Numbers(0)
        self.stack = _Numbers(1)
        # Operators and what they start, by the number that joins them. Communication was started by its parent.
        self.connection = _Numbers(1)
        self.operations = [_communication.operation_of(e, n) for n, e in enumerate(recording.communication)]

    def _thread(self, event: Event) -> int:
        # PyTorch gives Python threads that ran before the profile all bits for a number.
        return os.getpid() << 32 | event.thread & 0xFFFFFFFF

    def _connection(self, event: Event) -> int:
        return self.connection(id(event))

    def _starter(self, operation: Operation) -> Event:
        return operation.event.parent or operation.event

    def _names(self, *texts: str) -> Iterator[int]:
        yield from map(self.string_id, texts)

    def apis(self) -> Rows:
        for event in self.recording.events:
            frames = event.call_frames()
            dtypes = ";".join(event.dtypes)
            yield (
                event.start, event.end, self._thread(event), self.connection.of.get(id(event)), self.string_id(event.name),
                event.sequence if event.sequence >= 0 else None, event.forward_thread or None,
                self.string_id(dtypes) if dtypes else None, self.string_id(shapes_of(event)) if event.shapes else None,
                self.stack(frames) if frames else None, schema.PYTHON_TRACE if event.is_python else schema.OP,
            )  # fmt: skip

    def stacks(self) -> Rows:
        for frames, number in self.stack.of.items():
            yield from ((number, self.string_id(frame), depth) for depth, frame in enumerate(frames))

    def _task(self, start: int, end: int, starter: Event, number: int, kind: str, stream: int) -> tuple[Any, ...]:
        return (start, end, self.device, self._connection(starter), number, os.getpid(), self.string_id(kind), schema.UNSET,
                stream, number, schema.UNSET)  # fmt: skip

    def computing(self) -> tuple[Rows, Rows]:
        """TASK and COMPUTE_TASK_INFO of kernels."""
        tasks, infos = [], []
        absent = self.string_id(_NO_SHAPE)
        for number, kernel in enumerate(self.recording.kernels):
            core, formats = _kernels.core_of(kernel), ";".join(["ND"] * len(kernel.shapes))
            tasks.append(self._task(kernel.start, kernel.end, kernel, number, core, kernel.stream))
            dtypes = ";".join(dtype.upper() for dtype in kernel.dtypes)
            name, kind, unit, inputs, types, shapes, state, eligible = self._names(
                kernel.name, _kernels.type_of(kernel), core, formats, dtypes, shapes_of(kernel), "static", "NO"
            )
            infos.append((name, number, None, None, unit, kind, inputs, types, shapes, absent, absent, absent, absent,
                          state, eligible))  # fmt: skip
        return tasks, infos

    def communicating(self, first_task: int) -> tuple[Rows, Rows]:
        """TASK and COMMUNICATION_TASK_INFO: what an operation waited for others, and what it moved on each link."""
        tasks, infos = [], []
        for op_id, operation in enumerate(self.operations):
            moving = operation.event.end - round(operation.transit_ms * 1e6)
            waited = round(operation.wait_ms * 1e6)
            me = operation.event.message.place if operation.event.message else 0
            steps = [("Notify_Wait", moving - waited, moving, (me, me), 0.0)] if waited else []
            steps += [("Memcpy", moving, operation.event.end, link, size) for link, size in operation.sent.items()]
            group, dtype = self.string_id(operation.communicator), self._data_type(operation)
            for plane, (kind, start, end, (source, target), size) in enumerate(steps):
                number = first_task + len(tasks)
                tasks.append(self._task(start, end, self._starter(operation), number, "COMMUNICATION", schema.UNSET))
                known = schema.LINKS.get(operation.transport((source, target)) if size else "")
                transport, link_type = known or (schema.NOT_THERE, schema.NOT_THERE)
                infos.append(
                    (self.string_id(kind), number, self.string_id(kind), plane, group, schema.UNSET, schema.NOT_THERE, source,
                     target, transport, round(size), dtype, link_type, op_id, 1,
                     size * 1e9 / (end - start) if size and end > start else 0.0)
                )  # fmt: skip
        return tasks, infos

    def _data_type(self, operation: Operation) -> int:
        message = operation.event.message
        return schema.DATA_TYPES.get(message.dtype, schema.NOT_THERE) if message else schema.NOT_THERE

    def collectives(self) -> Rows:
        for op_id, operation in enumerate(self.operations):
            event = operation.event
            name, group, algorithm, kind = self._names(
                operation.short_name, operation.communicator, _NO_SHAPE, f"hcom_{operation.kind}_"
            )
            yield (
                name, event.start, event.end, self._connection(self._starter(operation)), group, op_id, 0, 0,
                self._data_type(operation), algorithm, event.message.elements if event.message else 0, kind, self.device,
            )  # fmt: skip

    def rows(self, memory: list[Memory], rank: int, metadata: dict[str, Any]) -> dict[str, Rows]:
        """Of all tables. Texts come last, when all are known."""
        events = self.recording.events
        tasks, computing = self.computing()
        more_tasks, communicating = self.communicating(len(tasks))
        rows: dict[str, Rows] = {
            **{table: list(values.items()) for table, values in schema.ENUMERATIONS.items()},
            "SESSION_TIME_INFO": [(events[0].start, max(e.end for e in events))] if events else [],
            "NPU_INFO": [(self.device, torch.npu.get_device_name(self.device))],
            "HOST_INFO": [(str(uuid.getnode()), socket.gethostname())],
            "RANK_DEVICE_MAP": [(rank, self.device)],
            "META_DATA": list(_versions()) + [(name, json.dumps(value)) for name, value in metadata.items()],
            "STEP_TIME": [(step.number, step.start, step.end) for step in self.recording.steps],
            "TASK": [*tasks, *more_tasks],
            "COMPUTE_TASK_INFO": computing,
            "COMMUNICATION_TASK_INFO": communicating,
            "COMMUNICATION_OP": list(self.collectives()),
            "PYTORCH_API": list(self.apis()),
            "PYTORCH_CALLCHAINS": list(self.stacks()),
            "MEMORY_RECORD": [
                (self.string_id("PTA"), r.time, r.allocated, r.reserved, r.allocated, None, r.device) for r in memory
            ],
            "OP_MEMORY": list(self._lives(memory)),
        }
        rows["CONNECTION_IDS"] = [(number, number) for number in self.connection.of.values()]
        rows["STRING_IDS"] = [(number, text) for text, number in self.string_id.of.items()]
        return rows

    def _lives(self, memory: list[Memory]) -> Rows:
        for first, last in lives_of(memory):
            end = (None,) * 4 if last is None else (last.time, last.time, *[last.time - first.time] * 2)
            totals = (None,) * 3 if last is None else (last.allocated, last.reserved, last.allocated)
            yield (self.string_id(first.operator), first.bytes, first.time, *end, first.allocated, first.reserved,
                   first.allocated, *totals, None, first.device)  # fmt: skip


def _versions() -> Iterator[tuple[str, str]]:
    parts = [str(part) for part in schema.SCHEMA_VERSION]
    yield "SCHEMA_VERSION", ".".join(parts)
    for name, part in zip(("MAJOR", "MINOR", "MICRO"), parts, strict=True):
        yield f"SCHEMA_VERSION_{name}", part


def _named(communication: dict[str, Any]) -> Iterator[tuple[str, str, str, str, Any]]:
    """(step, "p2p" or "collective", name, group, what) of each entry of a communication file."""
    for step, kinds in communication.items():
        for kind, entries in kinds.items():
            for full_name, what in entries.items():
                name, _, group = full_name.partition("@")
                yield step, kind, name, group, what


def _analysis_rows(recording: Recording, step_rows: Iterable[list[Any]]) -> dict[str, Rows]:
    """Of all tables of analysis.db; ``step_rows`` are those of step_trace_time.csv."""
    times, bandwidths = [], []
    for step, kind, name, group, what in _named(_communication.communication(recording)):
        time = what["Communication Time Info"]
        keys = (
            "Start Timestamp(us)",
            *(f"{part} Time(ms)" for part in ("Elapse", "Transit", "Wait", "Synchronization", "Idle")),
        )
        times.append((name, group, *(time.get(key, 0) for key in keys), step, kind))
        for transport, band in what["Communication Bandwidth Info"].items():
            known = (name, group, transport, band["Transit Size(MB)"], band["Transit Time(ms)"], band["Bandwidth(GB/s)"],
                     band.get("Large Packet Ratio", 0))  # fmt: skip
            for size, (count, spent) in band["Size Distribution"].items():
                bandwidths.append((*known, float(size), count, spent, step, kind))
    matrix = [
        (name, group, *link.split("-"), row["Transport Type"], row["Transit Size(MB)"], row["Transit Time(ms)"],
         row["Bandwidth(GB/s)"], step, kind, row.get("Op Name", ""))
        for step, kind, name, group, links in _named(_communication.communication_matrix(recording))
        for link, row in links.items()
    ]  # fmt: skip
    return {
        "StepTraceTime": [(row[0], str(row[1]), *map(float, row[2:])) for row in step_rows],
        "CommAnalyzerTime": times,
        "CommAnalyzerBandwidth": bandwidths,
        "CommAnalyzerMatrix": matrix,
    }


def write(
    output: Path,
    recording: Recording,
    memory: list[Memory],
    step_rows: Iterable[list[Any]],
    device: int,
    metadata: dict[str, Any],
) -> None:
    """Writes both files into the folder ``output``.

    Args:
        memory: what memory of the card did; empty if it was not recorded.
        step_rows: those of step_trace_time.csv.
        device: the card that was profiled.
        metadata: what META_DATA has beside the version of the tables.
    """
    rank = global_rank()
    name = "ascend_pytorch_profiler.db" if rank < 0 else f"ascend_pytorch_profiler_{rank}.db"
    _write(output / name, schema.PROFILE, _Profile(recording, device).rows(memory, rank, metadata), schema.INDEXES)
    _write(output / "analysis.db", schema.ANALYSIS, _analysis_rows(recording, step_rows), {})
