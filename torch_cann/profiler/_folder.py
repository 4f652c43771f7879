"""The folder ``*_ascend_pt``: trace, tables and their columns by the names of Ascend's tools."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch_cann import version
from torch_cann.profiler import _communication, _database, _kernels, _trace_view
from torch_cann.profiler._groups import global_rank, groups
from torch_cann.profiler._intervals import difference, length, union
from torch_cann.profiler._records import Event, Memory, Recording, lives_of, memory_of, shapes_of
from torch_cann.profiler.experimental_config import ExportType, ProfilerLevel, _ExperimentalConfig

OUTPUT = "ASCEND_PROFILER_OUTPUT"
TRACE = "trace_view.json"
_DETAILED = (ProfilerLevel.Level1, ProfilerLevel.Level2)
_ABSENT = "N/A"


def _us(ns: float) -> str:
    return f"{int(ns) // 1000}.{int(ns) % 1000:03d}"  # exact also for times since 1970


def _mb(size: int) -> str:
    return f"{size / 2**20:.3f}"


def _table(path: Path, columns: str, rows: Iterable[Iterable[Any]]) -> None:
    """Writes a CSV file; ``columns`` are separated by "|"."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split("|"))
        writer.writerows(rows)


def _kernel_rows(recording: Recording, device: int) -> Iterator[list[Any]]:
    """Of kernels and of communication, which belongs to no stream here."""
    last_end: dict[int, int] = {}
    for number, event in enumerate(sorted((*recording.kernels, *recording.communication), key=lambda e: e.start)):
        step = "" if event.step is None else event.step
        if event.is_communication:
            kind = f"hcom_{_communication.kind_of(event)}_"
            yield [step, device, _ABSENT, _ABSENT, _ABSENT, event.name, kind, _ABSENT, "COMMUNICATION", _us(event.start),
                   _us(event.duration), _us(0), *[_ABSENT] * 10]  # fmt: skip
            continue
        waited = max(0, event.start - last_end.get(event.stream, event.start))
        last_end[event.stream] = event.end
        dtypes = ";".join(dtype.upper() for dtype in event.dtypes)
        yield [
            step, device, _ABSENT, number, event.stream, event.name, _kernels.type_of(event), "static", _kernels.core_of(event),
            _us(event.start), _us(event.duration), _us(waited), _ABSENT, _ABSENT, "NO", shapes_of(event), dtypes,
            ";".join(["ND"] * len(event.shapes)), _ABSENT, _ABSENT, _ABSENT, _ABSENT,
        ]  # fmt: skip


_KERNEL_COLUMNS = (
    "Step Id|Device_id|Model ID|Task ID|Stream ID|Name|Type|OP State|Accelerator Core|Start Time(us)|Duration(us)|"
    "Wait Time(us)|Block Dim|Mix Block Dim|HF32 Eligible|Input Shapes|Input Data Types|Input Formats|Output Shapes|"
    "Output Data Types|Output Formats|Context ID"
)
_OPERATOR_COLUMNS = (
    "Name|Input Shapes|Call Stack|Host Self Duration(us)|Host Total Duration(us)|Device Self Duration(us)|"
    "Device Total Duration(us)|Device Self Duration With AICore(us)|Device Total Duration With AICore(us)"
)


def _operator_rows(recording: Recording) -> Iterator[list[Any]]:
    device_time: dict[int, int] = {}
    for kernel in recording.kernels:
        event: Event | None = kernel
        while event is not None:
            device_time[id(event)] = device_time.get(id(event), 0) + kernel.duration
            event = event.parent
    for event in recording.operators:
        own = event.duration if event.is_kernel else 0
        total = device_time.get(id(event), 0)
        cores = _us(own) if _kernels.core_of(event) == "AI_CORE" else _us(0)
        yield [
            event.name, shapes_of(event), ";\n".join(event.call_frames()), _us(event.duration - event.children_ns),
            _us(event.duration), _us(own), _us(total), cores, cores,
        ]  # fmt: skip


def _statistic_rows(recording: Recording, device: int) -> Iterator[list[Any]]:
    kinds: dict[tuple[str, str], list[int]] = {}
    for event in recording.kernels:
        kinds.setdefault((_kernels.type_of(event), _kernels.core_of(event)), []).append(event.duration)
    total = sum(map(sum, kinds.values())) or 1
    for (kind, core), times in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        spent = sum(times)
        yield [
            device, kind, core, len(times), _us(spent), _us(min(times)), _us(spent / len(times)), _us(max(times)),
            f"{100 * spent / total:.3f}",
        ]  # fmt: skip


def _api_rows(recording: Recording, device: int) -> Iterator[list[Any]]:
    """Levels are those of calls in CANN's profiles; there, operators of PyTorch are "op"."""
    calls: dict[tuple[str, str], list[int]] = {}
    for level, events in (("op", recording.operators), ("communication", recording.communication)):
        for event in events:
            calls.setdefault((level, event.name), []).append(event.duration)
    for (level, name), times in sorted(calls.items(), key=lambda item: -sum(item[1])):
        mean = sum(times) / len(times)
        variance = sum((t - mean) ** 2 for t in times) / len(times) / 1e6
        yield [device, level, name, _us(sum(times)), len(times), _us(mean), _us(min(times)), _us(max(times)),
               f"{variance:.3f}"]  # fmt: skip


def _step_rows(recording: Recording, device: int) -> Iterator[list[Any]]:
    """Where the time of each step went; one row without a number when there are no steps."""
    spans = [(e.number, e.start, e.end) for e in recording.steps]
    if not spans and recording.events:
        spans = [("", recording.events[0].start, max(event.end for event in recording.events))]
    for number, start, end in spans:
        kernels, operations = ([e for e in some if start <= e.start < end]
                               for some in (recording.kernels, recording.communication))  # fmt: skip
        computing, communication = recording.covered_by(kernels), recording.covered_by(operations)
        busy = union([*computing, *communication])
        exposed = length(difference(communication, computing))
        # The pipeline's bubble: nothing to do until an earlier stage has sent something.
        receiving = recording.covered_by(e for e in operations if e.name.startswith("hccl:recv"))
        bubble = length(difference(receiving, computing))
        first = busy[0][0] if busy else end
        yield [
            device, number, _us(length(computing)), _us(exposed), _us(length(communication) - exposed),
            _us(length(communication)), _us(max(0, end - start - length(busy))), _us(max(0, end - start - bubble)),
            _us(bubble), _us(max(0, exposed - bubble)), _us(first - start),
        ]  # fmt: skip


_STEP_COLUMNS = (
    "Device_id|Step|Computing|Communication(Not Overlapped)|Overlapped|Communication|Free|Stage|Bubble|"
    "Communication(Not Overlapped and Exclude Receive)|Preparing"
)


def _memory_rows(memory: list[Memory]) -> Iterator[list[Any]]:
    for record in memory:
        yield ["PTA", _us(record.time), _mb(record.allocated), _mb(record.reserved), _mb(record.allocated), "",
               f"NPU:{record.device}"]  # fmt: skip


def _operator_memory_rows(memory: list[Memory]) -> Iterator[list[Any]]:
    for first, last in lives_of(memory):
        release, lifetime = ("", "") if last is None else (_us(last.time), _us(last.time - first.time))
        at_end = ["", "", ""] if last is None else [_mb(last.allocated), _mb(last.reserved), _mb(last.allocated)]
        yield [
            first.operator, f"{first.bytes / 1024:.3f}", _us(first.time), release, release, lifetime, lifetime,
            _mb(first.allocated), _mb(first.reserved), _mb(first.allocated), *at_end, "", f"NPU:{first.device}",
        ]  # fmt: skip


_OPERATOR_MEMORY_COLUMNS = (
    "Name|Size(KB)|Allocation Time(us)|Release Time(us)|Active Release Time(us)|Duration(us)|Active Duration(us)|"
    "Allocation Total Allocated(MB)|Allocation Total Reserved(MB)|Allocation Total Active(MB)|"
    "Release Total Allocated(MB)|Release Total Reserved(MB)|Release Total Active(MB)|Stream Ptr|Device Type"
)


def write_about(folder: Path, configuration: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Writes how the profile was made, and of what: ``metadata`` is what the user added."""
    rank = global_rank()
    (folder / "FRAMEWORK").mkdir()
    info = {
        "config": configuration, "rank_id": rank, "torch_npu_version": version.TORCH_NPU,
        "torch_cann_version": version.__version__,
    }  # fmt: skip
    (folder / f"profiler_info{'' if rank < 0 else f'_{rank}'}.json").write_text(json.dumps(info, indent=1))
    (folder / "profiler_metadata.json").write_text(json.dumps(_known(metadata), indent=1))


def _write_text(
    output: Path, trace: dict[str, Any], recording: Recording, memory: list[Memory], level: ProfilerLevel, device: int
) -> None:
    _trace_view.add_device_tracks(trace, recording, device)
    (output / TRACE).write_text(json.dumps(trace), encoding="utf-8")
    _table(output / "operator_details.csv", _OPERATOR_COLUMNS, _operator_rows(recording))
    _table(output / "kernel_details.csv", _KERNEL_COLUMNS, _kernel_rows(recording, device))
    _table(output / "step_trace_time.csv", _STEP_COLUMNS, _step_rows(recording, device))
    if memory:
        columns = (
            "Component|Timestamp(us)|Total Allocated(MB)|Total Reserved(MB)|Total Active(MB)|Stream Ptr|Device Type"
        )
        _table(output / "memory_record.csv", columns, _memory_rows(memory))
        _table(output / "operator_memory.csv", _OPERATOR_MEMORY_COLUMNS, _operator_memory_rows(memory))
    if level not in _DETAILED:
        return
    columns = "Device_id|OP Type|Core Type|Count|Total Time(us)|Min Time(us)|Avg Time(us)|Max Time(us)|Ratio(%)"
    _table(output / "op_statistic.csv", columns, _statistic_rows(recording, device))
    columns = "Device_id|Level|API Name|Time(us)|Count|Avg(us)|Min(us)|Max(us)|Variance"
    _table(output / "api_statistic.csv", columns, _api_rows(recording, device))
    for name, make in (
        ("communication", _communication.communication),
        ("communication_matrix", _communication.communication_matrix),
    ):
        (output / f"{name}.json").write_text(json.dumps(make(recording), indent=1))


def write_tables(
    folder: Path, recording: Recording, options: _ExperimentalConfig, device: int, metadata: dict[str, Any]
) -> None:
    """Makes of PyTorch's trace, which ``folder`` holds, what ``options`` ask for.

    Args:
        options: how much the tables hold, and whether they are text, databases or both.
        device: the card that was profiled.
        metadata: what the user added.
    """
    output = folder / OUTPUT
    trace = json.loads((output / TRACE).read_text(encoding="utf-8"))
    memory = memory_of(trace, recording)
    if ExportType.Text in options.export_type:
        _write_text(output, trace, recording, memory, options.profiler_level, device)
    else:
        (output / TRACE).unlink()
    if ExportType.Db in options.export_type:
        _database.write(output, recording, memory, _step_rows(recording, device), device, _known(metadata))


def _known(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"simulated": True, "parallel_group_info": groups(), **metadata}
