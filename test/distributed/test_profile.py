"""A profile of a training on several cards: what the tables say of communication."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import device


def profile_of_collectives(base: str) -> str:
    from torch_npu import profiler

    config = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1)
    x = torch.ones(1 << 16, device=device())
    with profiler.profile(
        schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(base, worker_name=f"rank{dist.get_rank()}"),
        experimental_config=config,
    ) as prof:
        for _ in range(2):
            x.mul_(0.5)
            dist.all_reduce(x)
            if dist.get_rank() == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)
            prof.step()
    (folder,) = Path(base).glob(f"rank{dist.get_rank()}_*_ascend_pt")
    return str(folder / "ASCEND_PROFILER_OUTPUT")


def test_communication_is_in_the_tables(two_ranks, tmp_path) -> None:
    for output in map(Path, two_ranks.run(profile_of_collectives, str(tmp_path))):
        communication = json.loads((output / "communication.json").read_text())
        assert set(communication) == {"step0", "step1"}
        for step in communication.values():
            for kind, count in (("collective", 1), ("p2p", 1)):
                total = step[kind].pop("Total Op Info")["Communication Time Info"]
                times = [operation["Communication Time Info"] for operation in step[kind].values()]
                assert len(times) == count and all(name.startswith("hcom_") for name in step[kind])
                assert total["Elapse Time(ms)"] == sum(t["Elapse Time(ms)"] for t in times) > 0
                assert set(times[0]) == {
                    "Start Timestamp(us)", "Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)",
                    "Synchronization Time(ms)", "Idle Time(ms)", "Wait Time Ratio", "Synchronization Time Ratio",
                }  # fmt: skip
        with open(output / "step_trace_time.csv", newline="") as file:
            steps = list(csv.DictReader(file))
        assert len(steps) == 2 and all(float(step["Communication"]) > 0 for step in steps)
        trace = json.loads((output / "trace_view.json").read_text())
        assert "Communication" in {event.get("tid") for event in trace["traceEvents"]}
