"""npu-smi for simulated cards: ``npu-smi info``, in the layout of the real tool.

Sensors that a simulated card does not have read NA. Memory is that which processes of this user hold.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_cann import _C, version
from torch_cann.tools import _processes

# What every process keeps on each card from the start; a process that holds no more is not using the card.
CONTEXT_BYTES = 64 << 20
_TOP = "+---------------------------+---------------+----------------------------------------------------+"
_DOUBLE = _TOP.replace("-", "=")
_FULL = "+" + "-" * (len(_TOP) - 2) + "+"


@dataclass
class Card:
    """A card of the server; bytes."""

    index: int
    name: str
    capacity: int
    processes: list[_processes.Use] = field(default_factory=list)

    @property
    def used(self) -> int:
        return sum(use.used for use in self.processes)


def cards() -> list[Card]:
    """All cards of the server, whatever ASCEND_RT_VISIBLE_DEVICES says, with the processes that use them."""
    found = {
        index: Card(index, torch.npu.get_device_name(index), torch.npu.get_device_properties(index).total_memory)
        for index in range(torch.npu.device_count())
    }
    for use in _processes.uses():
        card = found.setdefault(use.card, Card(use.card, use.soc, use.capacity))
        if use.used > CONTEXT_BYTES:
            card.processes.append(use)
    return [found[index] for index in sorted(found)]


def _mb(size: int) -> int:
    return size >> 20


def _line(text: str) -> str:
    return f"| {text:<{len(_TOP) - 4}} |"


def table(found: list[Card]) -> str:
    """``npu-smi info``."""
    banner = f"npu-smi torch_cann {version.__version__}"
    lines = [_FULL, _line(f"{banner:<32} Version: {version.CANN} (simulated)"), _TOP]
    lines += [
        f"| {'NPU   Name':<25} | {'Health':<13} | {'Power(W)':<11} {'Temp(C)':<17} {'Hugepages-Usage(page)':<21}|",
        f"| {'Chip':<25} | {'Bus-Id':<13} | {'AICore(%)':<11} {'Memory-Usage(MB)':<17} {'HBM-Usage(MB)':<21}|",
        _DOUBLE,
    ]
    for card in found:
        hbm = f"{_mb(card.used):<5}/ {_mb(card.capacity)}"
        lines += [
            f"| {card.index:<5} {card.name.removeprefix('Ascend'):<19} | {'OK':<13} | {'NA':<11} {'NA':<17} "
            f"{'0    / 0':<21}|",
            f"| {0:<25} | {'NA':<13} | {'NA':<11} {'0    / 0':<17} {hbm:<21}|",
            _DOUBLE,
        ]
    lines += [
        _TOP,
        f"| {'NPU     Chip':<25} | {'Process id':<13} | {'Process name':<24} | {'Process memory(MB)':<23} |",
        _DOUBLE,
    ]
    for card in found:
        for use in card.processes:
            lines.append(f"| {card.index:<7} {0:<17} | {use.pid:<13} | {use.name:<24} | {_mb(use.used):<23} |")
        if not card.processes:
            lines.append(_line(f"No running processes found in NPU {card.index}"))
        lines.append(_DOUBLE)
    return "\n".join(lines)


def _facts(pairs: list[tuple[str, Any]]) -> str:
    return "\n".join(f"\t{name:<30} : {value}" for name, value in pairs)


def _head(card: Card) -> list[tuple[str, Any]]:
    return [("NPU ID", card.index), ("Chip Count", 1)]


def listing(found: list[Card]) -> str:
    """``npu-smi info -l``."""
    parts = [_facts([("Total Count", len(found))]), *(_facts(_head(card)) for card in found)]
    return "\n\n".join(parts)


def mapping(found: list[Card]) -> str:
    """``npu-smi info -m``."""
    rows = [("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")]
    rows += [(card.index, 0, card.index, card.name.replace("Ascend", "Ascend ")) for card in found]
    return "\n".join("\t" + "".join(f"{cell!s:<31}" for cell in row).rstrip() for row in rows)


_ABSENT = "NA"  # what a simulated card has no sensor for


def _usages(card: Card) -> list[tuple[str, Any]]:
    absent = ("Aicore Usage Rate(%)", "Aicpu Usage Rate(%)", "Ctrlcpu Usage Rate(%)", "HBM Bandwidth Usage Rate(%)")
    return [
        ("HBM Capacity(MB)", _mb(card.capacity)),
        ("HBM Usage Rate(%)", round(100 * card.used / card.capacity)),
        *((name, _ABSENT) for name in absent),
        ("Chip ID", 0),
    ]


def _memory(card: Card) -> list[tuple[str, Any]]:
    return [
        ("DDR Capacity(MB)", 0),
        ("HBM Capacity(MB)", _mb(card.capacity)),
        ("HBM Clock Speed(MHz)", _ABSENT),
        ("HBM Temperature(C)", _ABSENT),
        ("Chip ID", 0),
    ]


def _board(card: Card) -> list[tuple[str, Any]]:
    absent = ("Firmware Version", "Board ID", "PCB ID", "BOM ID", "PCIe Bus Info", "Slot ID")
    return [
        ("Product Name", card.name),
        ("Software Version", f"torch_cann {version.__version__}"),
        ("Compatibility", "OK"),
        *((name, _ABSENT) for name in absent),
    ]


def _health(card: Card) -> list[tuple[str, Any]]:
    return [("Health Status", "OK"), ("Error Code", _ABSENT), ("Error Information", _ABSENT)]


def _common(card: Card) -> list[tuple[str, Any]]:
    cores = torch.npu.get_device_properties(card.index).cube_core_num
    absent = ("Aicore Usage Rate(%)", "Aicore Freq(MHZ)", "Temperature(C)", "NPU Real-time Power(W)")
    return [
        ("Chip ID", 0),
        ("HBM Usage Rate(%)", round(100 * card.used / card.capacity)),
        ("Aicore Count", cores),
        *((name, _ABSENT) for name in absent),
    ]


def process_memory(card: Card) -> str:
    """``npu-smi info -t proc-mem``."""
    lines = [
        f"\tProcess id:{use.pid:<16} Process name:{use.name:<16} Process memory(MB):{_mb(use.used)}"
        for use in card.processes
    ]
    return _facts(_head(card)) + "\n\n" + ("\n".join(lines) or "\tNo process in device.")


_FACTS = {
    "board": _board,
    "common": _common,
    "health": _health,
    "memory": _memory,
    "power": lambda card: [("Power Dissipation(W)", _ABSENT)],
    "temp": lambda card: [("Temperature(C)", _ABSENT)],
    "usages": _usages,
}
_TYPES = (*_FACTS, "proc-mem")


def details(card: Card, kind: str) -> str:
    """``npu-smi info -t kind``."""
    if kind == "proc-mem":
        return process_memory(card)
    return _facts(_head(card)) + "\n\n" + _facts(_FACTS[kind](card))


def as_json(found: list[Card]) -> str:
    return json.dumps(
        {
            "version": version.__version__,
            "soc": _C._npu_getSocName(),
            "cards": [
                {
                    "id": card.index,
                    "name": card.name,
                    "hbm_total_bytes": card.capacity,
                    "hbm_used_bytes": card.used,
                    "processes": [{"pid": u.pid, "name": u.name, "used_bytes": u.used} for u in card.processes],
                }
                for card in found
            ],
        },
        indent=1,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npu-smi", description="Shows the simulated NPUs of this machine.")
    parser.add_argument("-v", "--version", action="version", version=f"npu-smi torch_cann {version.__version__}")
    info = parser.add_subparsers(dest="command", required=True).add_parser("info", help="cards and processes")
    info.add_argument("watch", nargs="?", choices=["watch"], help="repeat until interrupted")
    info.add_argument("-d", type=float, default=1.0, metavar="SECONDS", help="with watch: time between two outputs")
    info.add_argument("-l", action="store_true", help="list the cards")
    info.add_argument("-m", action="store_true", help="map cards, chips and logical ids")
    info.add_argument("-t", choices=sorted(_TYPES), help="facts of one kind")
    info.add_argument("-i", type=int, metavar="CARD", help="with -t: one card; all if left out")
    info.add_argument("-c", type=int, default=0, metavar="CHIP", help="with -t: a chip of the card; there is only 0")
    info.add_argument("--json", action="store_true", help="everything, for programs")
    return parser


def _output(options: argparse.Namespace) -> str:
    found = cards()
    if options.i is not None:
        found = [card for card in found if card.index == options.i]
        if not found or options.c != 0:
            raise LookupError(f"there is no chip {options.c} of NPU {options.i}: see npu-smi info -l")
    if options.json:
        return as_json(found)
    if options.l:
        return listing(found)
    if options.m:
        return mapping(found)
    if options.t:
        return "\n\n".join(details(card, options.t) for card in found)
    return table(found)


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    os.environ.pop("ASCEND_RT_VISIBLE_DEVICES", None)  # the tool shows the server, not what a process may use
    if not options.d > 0:
        parser.error(f"argument -d: must be above 0 seconds, but is {options.d:g}")
    try:
        while True:
            print(_output(options), flush=True)
            if not options.watch:
                return 0
            time.sleep(options.d)
    except LookupError as error:
        print(f"npu-smi: {error.args[0]}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
