"""The last step as a trace that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from pathlib import Path

from torch_cann.plan.analysis import COLLECTIVES, RankTimes
from torch_cann.plan.ranks import COLLECTIVE, LAUNCH, RECEIVE, SEND

_FIRST_GROUP_THREAD = 1000


def events(placed: list[RankTimes]) -> list[dict]:
    """Complete events ("ph": "X"), one process per rank, one thread per stream and per communicator."""
    result: list[dict] = []
    for times in placed:
        rank = times.trace.rank
        result.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        for position in times.in_window().nonzero()[0]:
            action = times.table[position]
            kind = action["kind"]
            event = {"ph": "X", "pid": rank, "ts": round(float(times.start[position]), 3)}
            if kind == LAUNCH:
                row = times.trace.rows[action["what"]]
                event |= {"name": row[0], "cat": row[1], "tid": int(action["stream"]), "dur": float(action["us"])}
                event["args"] = {"line": times.trace.sites[action["site"]], "flops": row[4], "bytes": row[5]}
            elif kind in (COLLECTIVE, SEND, RECEIVE):
                name = {SEND: "send", RECEIVE: "receive"}.get(int(kind), COLLECTIVES[action["collective"]])
                event |= {"name": name, "cat": "collective", "tid": _FIRST_GROUP_THREAD + int(action["what"])}
                event["dur"] = round(float(times.end[position] - times.start[position]), 3)
                event["args"] = {"ranks": len(times.trace.groups[action["what"]][1]), "value": int(action["value"])}
            else:
                continue
            result.append(event)
    return result


def write(placed: list[RankTimes], path: Path) -> None:
    path.write_text(json.dumps({"traceEvents": events(placed), "displayTimeUnit": "ms"}))
