"""The full operator sweep: every operator of the OpInfo database, every dtype, every check.

    python test/operators/sweep.py --device npu --output build/operators.jsonl

Results are appended to the output as they come; a second run continues where the first stopped. Exits with 1 if a case
fails that ``exceptions.toml`` does not list, or a listed one passes.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from opsuite import verdict
from opsuite.cases import Case, all_cases
from opsuite.checks import CHECKS
from opsuite.pool import Runner


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu", help="device to compare with the CPU (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/operators.jsonl"), help="results, one JSON per line")
    parser.add_argument("--summary", type=Path, help="also write the summary as JSON here")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results in the output")
    parser.add_argument("--retry-failed", action="store_true", help="run again what failed in the output")
    parser.add_argument("--op", action="append", default=[], help="only operators matching this pattern (repeatable)")
    parser.add_argument("--dtype", action="append", default=[], help="only this dtype (repeatable)")
    parser.add_argument("--check", action="append", default=[], choices=list(CHECKS), help="only this check")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds per check (default: %(default)s)")
    return parser.parse_args()


def _selected(options: argparse.Namespace) -> list[Case]:
    def wanted(case: Case) -> bool:
        named = not options.op or any(fnmatch.fnmatchcase(case.op, pattern) for pattern in options.op)
        return named and (not options.dtype or case.dtype in options.dtype)

    return [case for case in all_cases() if wanted(case)]


def _earlier(options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """The results already in the output by (case, check); a later line replaces an earlier one."""
    if options.fresh or not options.output.exists():
        return {}
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for line in options.output.read_text(encoding="utf-8").splitlines():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line a killed sweep was writing
        if result["device"] != options.device:
            raise SystemExit(f"{options.output} holds results of {result['device']}; use --fresh or another file")
        results[result["case"], result["check"]] = result
    return results


class _Sweep:
    """Shares the pending cases among threads, each with a worker process of its own."""

    def __init__(self, options: argparse.Namespace, results: dict[tuple[str, str], dict[str, Any]]) -> None:
        self._options = options
        self._results = results
        self._pending: queue.SimpleQueue[tuple[Case, list[str]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._total = 0
        self._done = 0
        self._errors: list[BaseException] = []

    def add(self, case: Case, checks: list[str]) -> None:
        self._pending.put((case, checks))
        self._total += 1

    def run(self, sink: TextIO) -> None:
        """Runs everything pending; raises what stopped a worker from starting."""
        threads = [threading.Thread(target=self._drain, args=(sink,)) for _ in range(self._options.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _drain(self, sink: TextIO) -> None:
        runner = Runner(self._options.device, self._options.timeout)
        try:
            while not self._errors:
                case, checks = self._pending.get_nowait()
                self._record(case, runner.run(str(case), checks), sink)
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._errors.append(error)
        finally:
            runner.close()

    def _record(self, case: Case, outcomes: list[dict[str, Any]], sink: TextIO) -> None:
        with self._lock:
            for outcome in outcomes:
                result = {"device": self._options.device, "case": str(case), **outcome}
                self._results[str(case), outcome["check"]] = result
                sink.write(json.dumps(result) + "\n")
                if verdict.judge(self._options.device, case, outcome) in (verdict.FAILED, verdict.STALE):
                    print(f"{case} {outcome['check']}: {outcome['kind']} {outcome['detail'][:200]}", flush=True)
            sink.flush()
            self._done += 1
            if self._done % 100 == 0 or self._done == self._total:
                print(f"[{time.strftime('%H:%M:%S')}] {self._done} of {self._total} cases", flush=True)


def main() -> int:
    """Runs the sweep; the number returned is the exit status."""
    options = _arguments()
    results = _earlier(options)
    checks = options.check or list(CHECKS)
    sweep = _Sweep(options, results)
    selected = _selected(options)
    for case in selected:
        missing = [check for check in checks if _is_missing(options, results.get((str(case), check)))]
        if missing:
            sweep.add(case, missing)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w" if options.fresh else "a", encoding="utf-8") as sink:
        sweep.run(sink)
    chosen = {(str(case), check) for case in selected for check in checks}
    relevant = [result for key, result in results.items() if key in chosen]
    summary = verdict.summarize(relevant)
    causes = verdict.causes(relevant)
    _print_summary(summary, causes)
    if options.summary:
        document = {"device": options.device, "checks": summary, "causes": dict(causes)}
        options.summary.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 1 if causes else 0


def _is_missing(options: argparse.Namespace, result: dict[str, Any] | None) -> bool:
    return result is None or (options.retry_failed and result["status"] == "fail")


def _print_summary(summary: dict[str, dict[str, int]], causes: list[tuple[str, list[str]]]) -> None:
    print(verdict.table(summary))
    for cause, names in causes:
        print(f"\n{len(names)} x {cause}")
        for name in names[:12]:
            print(f"    {name}")


if __name__ == "__main__":
    sys.exit(main())
