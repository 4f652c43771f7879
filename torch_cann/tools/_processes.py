"""Which processes of this user hold memory of which simulated cards: reads what csrc/runtime/process_record.h writes."""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<8sIIQ32s")
_CARD = struct.Struct("<QQQ")
_MAGIC, _VERSION = b"CANNPROC", 1


@dataclass(frozen=True)
class Use:
    """What a process holds of a card."""

    pid: int
    name: str  # of the program
    soc: str
    card: int  # physical id
    used: int  # bytes
    capacity: int  # bytes


def runtime_dir() -> Path:
    """The folder of the records; the same rule as in csrc/sim/env.cpp."""
    given = os.environ.get("TORCH_CANN_RUNTIME_DIR", "").strip()
    if given:
        return Path(given)
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "torch_cann" if base else Path(f"/tmp/torch_cann-{os.getuid()}")


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])  # field 22; the third is the first after the name


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def _uses(pid: int, data: bytes) -> Iterator[Use]:
    """The cards in a record; none when it is not complete, or of another process that had this id."""
    if len(data) < _HEADER.size:
        return
    magic, version, cards, started, soc = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or started != _started(pid):
        return
    for index in range(cards):
        card, capacity, used = _CARD.unpack_from(data, _HEADER.size + index * _CARD.size)
        yield Use(pid, _name(pid), soc.rstrip(b"\0").decode(), card, used, capacity)


def uses() -> list[Use]:
    """What every living process holds, this one left out. Records of processes that are gone are removed."""
    found: list[Use] = []
    folder = runtime_dir()
    for record in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not record.name.isdecimal() or int(record.name) == os.getpid():
            continue
        pid = int(record.name)
        if _started(pid) is None:
            record.unlink(missing_ok=True)
            continue
        try:
            found += _uses(pid, record.read_bytes())
        except OSError:  # ended meanwhile
            continue
    return found
