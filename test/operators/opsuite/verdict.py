"""Turns outcomes into verdicts against the exceptions table, and verdicts into the tables people read."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from .cases import Case
from .exceptions import reason_for

PASSED, KNOWN, FAILED, STALE, NOT_APPLICABLE = "passed", "known", "failed", "stale", "n/a"


def judge(device: str, case: Case, outcome: dict[str, Any]) -> str:
    """One of passed, known (fails and is listed), failed, stale (listed but does not fail), n/a."""
    # The list is npu's; the CPU compared with itself has no exceptions.
    listed = device != "cpu" and reason_for(case, outcome["check"]) is not None
    if outcome["status"] == "fail":
        return KNOWN if listed else FAILED
    if listed:
        return STALE
    return PASSED if outcome["status"] == "pass" else NOT_APPLICABLE


def summarize(results: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts of verdicts per check and, under ``total``, over all; a result is an outcome with device and case."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        verdict = judge(result["device"], Case.parse(result["case"]), result)
        counts[result["check"]][verdict] += 1
        counts["total"][verdict] += 1
    return {check: dict(counter) for check, counter in counts.items()}


def pass_rate(counts: dict[str, int]) -> float:
    """Share of what passes on the CPU that passes on the device, in percent; 100 where nothing applies."""
    passed = counts.get(PASSED, 0) + counts.get(STALE, 0)
    applicable = passed + counts.get(KNOWN, 0) + counts.get(FAILED, 0)
    return 100.0 * passed / applicable if applicable else 100.0


def table(summary: dict[str, dict[str, int]]) -> str:
    """The summary as text, the total last."""
    columns = (PASSED, FAILED, KNOWN, STALE, NOT_APPLICABLE)
    lines = [f"{'check':16s}" + "".join(f"{column:>9s}" for column in columns) + f"{'rate':>10s}"]
    for check in [*(name for name in summary if name != "total"), *(name for name in summary if name == "total")]:
        counts = summary[check]
        numbers = "".join(f"{counts.get(column, 0):9d}" for column in columns)
        lines.append(f"{check:16s}{numbers}{pass_rate(counts):9.3f}%")
    return "\n".join(lines)


def causes(results: Iterable[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Unexpected verdicts grouped by cause, the most frequent first: (cause, names of case and check)."""
    groups: dict[str, list[str]] = defaultdict(list)
    for result in results:
        verdict = judge(result["device"], Case.parse(result["case"]), result)
        if verdict in (FAILED, STALE):
            cause = "listed as an exception, but does not fail" if verdict == STALE else _cause(result)
            groups[cause].append(f"{result['case']} {result['check']}")
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _cause(result: dict[str, Any]) -> str:
    """The failure with what varies from sample to sample taken out."""
    detail = re.sub(r"^sample \d+(, [\w.]+)?: ", "", result["detail"])
    detail = re.sub(r"output \d+:? ?", "", detail)
    return f"{result['kind']}: {re.sub(r'-?[0-9][0-9.e+-]*', '#', detail)[:220]}"
