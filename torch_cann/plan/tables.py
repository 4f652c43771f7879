"""Tables of operator and collective times as CSV: ours out, measured ones in, to compare and to calibrate.

Columns: ``kind`` (operator or collective), ``name``, ``shapes`` (of the inputs, ``64x128;128x32``), ``dtype``, ``bytes`` and
``ranks`` (of collectives: the payload, and first-count-stride of the members), ``duration_us``.
"""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import torch

from torch_cann import _C
from torch_cann.plan.errors import PlanError

_sim = _C._sim
COLUMNS = ("kind", "name", "shapes", "dtype", "bytes", "ranks", "duration_us")
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "int8": torch.int8}
_PRODUCTS = ((4096, 4096, 4096), (8192, 4096, 4096), (4096, 11008, 4096), (4096, 4096, 11008), (8192, 8192, 8192))
_VECTORS = ((4096, 4096), (8192, 8192), (1, 4096))
_GROUPS = ("0-2-1", "0-4-1", "0-8-1", "0-16-1", "0-8-8", "0-64-1")
_SIZES = tuple(2**power for power in range(20, 31, 2))
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def _members(text: str) -> list[int]:
    try:
        first, count, stride = (int(part) for part in text.split("-"))
    except ValueError as error:
        raise PlanError(f"ranks are first-count-stride, for example 0-8-1, but the table has {text!r}") from error
    return [first + i * stride for i in range(count)]


def _operator_us(name: str, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> float:
    """The model's time of one call of ``torch.ops.aten.<name>``, which is run dry."""
    inputs = [torch.empty(shape, dtype=dtype, device="npu") for shape in shapes]
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name, None)
    if function is None:
        raise PlanError(f"the table names an operator {name!r} that is neither in torch nor in torch.nn.functional")
    before = _sim.spent()
    try:
        function(*inputs)
    except (RuntimeError, TypeError) as error:
        raise PlanError(
            f"operator {name} does not take inputs of shapes {shapes}: {str(error).splitlines()[0]}"
        ) from error
    after = _sim.spent()
    return sum(after[engine] - before[engine] for engine in ("cube", "vector", "copy"))


def _rows() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for dtype in ("bfloat16", "float32"):
        for m, n, k in _PRODUCTS:
            us = _operator_us("mm", [(m, k), (k, n)], _DTYPES[dtype])
            rows.append(
                {"kind": "operator", "name": "mm", "shapes": f"{m}x{k};{k}x{n}", "dtype": dtype, "duration_us": us}
            )
        for shape in _VECTORS:
            for name, count in (("add", 2), ("gelu", 1), ("exp", 1)):
                us = _operator_us(name, [shape] * count, _DTYPES[dtype])
                text = ";".join(["x".join(map(str, shape))] * count)
                rows.append({"kind": "operator", "name": name, "shapes": text, "dtype": dtype, "duration_us": us})
    for name in _COLLECTIVES:
        for ranks in _GROUPS:
            for size in _SIZES:
                us = _sim.collective_us(name, size, _members(ranks))
                rows.append({"kind": "collective", "name": name, "bytes": size, "ranks": ranks, "duration_us": us})
    return rows


def _trace_rows(path: Path) -> list[dict[str, object]]:
    events = json.loads(path.read_text())["traceEvents"]
    seen = {}
    for event in events:
        if event["ph"] == "X" and event["cat"] != "collective":
            key = (event["name"], event["args"]["bytes"])
            seen[key] = {"kind": "operator", "name": key[0], "bytes": int(key[1]), "duration_us": event["dur"]}
    return list(seen.values())


def export(output: Path, trace: Path | None) -> int:
    """Writes the model's times of a standard set, or of the operators of a trace; returns how many."""
    rows = _trace_rows(trace) if trace else _rows()
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow(row | {"duration_us": round(float(row["duration_us"]), 3)})
    return len(rows)


def _modelled(row: dict[str, str]) -> float:
    """The model's time of what a row measured. Raises PlanError or ValueError for a row that says too little."""
    kind = row["kind"]
    if kind not in ("operator", "collective"):
        raise PlanError(f"kind is operator or collective, not {kind!r}")
    needed = ("bytes", "ranks") if kind == "collective" else ("shapes", "dtype")
    missing = [column for column in needed if not row.get(column)]
    if missing:
        raise PlanError(f"a measured {kind} needs {' and '.join(needed)}, but {' and '.join(missing)} is missing")
    if kind == "collective":
        return _sim.collective_us(row["name"], float(row["bytes"]), _members(row["ranks"]))
    if row["dtype"] not in _DTYPES:
        raise PlanError(f"dtype {row['dtype']!r} is none of {', '.join(_DTYPES)}")
    try:
        shapes = [tuple(int(size) for size in shape.split("x")) for shape in row["shapes"].split(";")]
    except ValueError as error:
        raise PlanError(f"shapes are like 64x128;128x32, not {row['shapes']!r}") from error
    return _operator_us(row["name"], shapes, _DTYPES[row["dtype"]])


def _ratio(row: dict[str, str]) -> float:
    """Measured over modelled time of a row."""
    measured = float(row["duration_us"])
    if not 0 < measured < float("inf"):
        raise PlanError(f"duration_us must be a positive number, but is {row['duration_us']}")
    modelled = _modelled(row)
    if modelled <= 0:
        raise PlanError(f"{row['name']} takes no time in the model, so there is nothing to compare with")
    return measured / modelled


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = {"kind", "name", "duration_us"} - set(reader.fieldnames or ())
            if missing:
                raise PlanError(f"{path} lacks the columns {', '.join(sorted(missing))}")
            return list(reader)
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not a table of comma-separated values: {error}") from error


def compare(path: Path) -> str:
    """Measured over modelled time per name, and over all rows: the latter is a --calibration for `run` and `estimate`."""
    ratios: dict[str, list[float]] = {}
    for line, row in enumerate(_read(path), start=2):
        try:
            ratios.setdefault(row["name"], []).append(_ratio(row))
        except (PlanError, ValueError, TypeError) as error:
            raise PlanError(f"{path}, line {line}: {error}") from error
    if not ratios:
        raise PlanError(f"{path} has no rows")
    lines = [f"{'name':<24}{'rows':>6}{'measured/modelled':>20}{'least':>9}{'most':>9}"]
    for name, values in ratios.items():
        lines.append(
            f"{name:<24}{len(values):>6}{statistics.median(values):>20.3f}{min(values):>9.3f}{max(values):>9.3f}"
        )
    everything = statistics.median([value for values in ratios.values() for value in values])
    return "\n".join([*lines, f"median of all rows: pass --calibration {everything:.3f} to run and estimate"])
