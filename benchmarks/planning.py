"""How long npu-plan takes and how much memory: a table of commands, each a fresh process tree.

Wall time includes the start of Python and the import of PyTorch. Memory is the largest sum of proportional set sizes
(pages shared between processes count once) of the command and all that it started, sampled five times a second, and the
largest resident set of one process, most of which is PyTorch's. Nothing is compared with the CPU device; beside each
figure stands the limit that it is wanted to keep.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SCRIPTS = Path(__file__).resolve().parent / "scripts"
_THOUSAND = ["--nnodes", "128", "--nproc-per-node", "8"]
_MANY = ["--nnodes", "12288", "--nproc-per-node", "8"]


@dataclass(frozen=True)
class Command:
    """``arguments`` of npu-plan; limits in seconds of the whole, seconds of a step on the host, and MiB of all processes
    and of one."""

    arguments: list[str]
    seconds: float | None = None
    step: float | None = None
    memory: int | None = None
    resident: int | None = None


def _script(name: str, *arguments: str) -> list[str]:
    return [str(_SCRIPTS / name), *arguments]


# All 96 layers on one of eight tensor-parallel ranks; enough steps that one is not disturbed.
_GPT3_STEP = "run --steps 12 --nproc-per-node 8 --hbm-mb 1048576".split()
_GPT3_STEP += _script("gpt_3d.py", "--pp", "1", "--micro-batches", "1")

_COMMANDS = {
    "estimate": Command(
        "estimate --model gpt3-175b --tp 8 --pp 16 --npus 1024 --global-batch 1024 --sequence 2048".split(), seconds=3
    ),
    "175b": Command(["run", *_THOUSAND, *_script("gpt_3d.py")], seconds=30, memory=2048),
    "gpt3-step": Command([*_GPT3_STEP], resident=316),
    "gpt3-step-alone": Command([*_GPT3_STEP, "--no-gradient-reduction"], step=0.063, resident=316),
    "llama-step": Command(["run", *_THOUSAND, *_script("llama_fsdp_tp.py")], step=0.66, resident=335),
    "llama-98304": Command(["run", *_MANY, *_script("llama_fsdp_tp.py")]),
    "search": Command("search --model llama2-13b --npus 64 --global-batch 256 --limit 200".split(), seconds=300),
}


def _children() -> dict[int, list[int]]:
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                status = Path("/proc", entry, "stat").read_text()
                children[int(status.rpartition(")")[2].split()[1])].append(int(entry))
    return children


def _tree(root: int) -> Iterator[int]:
    children, waiting = _children(), [root]
    while waiting:
        waiting.extend(children[waiting[0]])
        yield waiting.pop(0)


def _bytes_of(pid: int) -> dict[str, int]:
    """Proportional ("Pss") and resident ("Rss") set size; nothing of a process that has ended."""
    with contextlib.suppress(OSError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return {
            name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^([RP]ss): +(\d+) kB", rollup, re.MULTILINE)
        }
    return {}


def measure(command: Command) -> dict[str, float | int | None]:
    """Runs one command: seconds by the clock and of the processors, the fastest step that its script printed, peak bytes
    of all processes and of one, processes at once. Raises CalledProcessError when it fails."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "npu_plan", *command.arguments], stdout=subprocess.PIPE, text=True
    )
    ended, peak, largest, most = threading.Event(), [0], [0], [0]

    def watch() -> None:
        while not ended.wait(0.2):
            sizes = [_bytes_of(pid) for pid in _tree(process.pid)]
            most[0] = max(most[0], len(sizes))
            peak[0] = max(peak[0], sum(size.get("Pss", 0) for size in sizes))
            largest[0] = max(largest[0], *(size.get("Rss", 0) for size in sizes))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    steps = [float(step) for step in re.findall(r"a step took the host ([\d.]+) s", output)]
    return {
        "seconds": seconds,
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "step_seconds": min(steps, default=None),
        "peak_bytes": peak[0],
        "resident_bytes": largest[0],
        "processes": most[0],
    }


def _cell(value: float | None, limit: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if limit is None else f" ({limit:g})")


def main() -> int:
    """Measures the commands named, all by default; the number returned is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="command", help=f"of {', '.join(_COMMANDS)}; default: all")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    if unknown := [name for name in options.commands if name not in _COMMANDS]:
        parser.error(f"unknown: {', '.join(unknown)}")
    results = {}
    print(
        f"{'command':<16}{'seconds':>12}{'processor':>12}{'step on host':>18}{'peak MiB':>14}{'resident MiB':>16}"
        f"{'processes':>11}"
    )
    for name in options.commands or _COMMANDS:
        command = _COMMANDS[name]
        found = results[name] = measure(command)
        print(
            f"{name:<16}{_cell(found['seconds'], command.seconds, 1):>12}{found['processor_seconds']:>12.1f}"
            f"{_cell(found['step_seconds'], command.step, 3):>18}"
            f"{_cell(found['peak_bytes'] / 2**20, command.memory, 0):>14}"
            f"{_cell(found['resident_bytes'] / 2**20, command.resident, 0):>16}{found['processes']:>11}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
