"""A profile of a training on several cards: what the tables say of communication."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import device


def profile_of_collectives(base: str) -> str:
    from torch_npu import profiler

    config = profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1)
    x = torch.ones(1 << 16, device=device())
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    with profiler.profile(
        schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(base, worker_name=f"rank{dist.get_rank()}"),
        experimental_config=config,
    ) as prof:
        for _ in range(2):
            x.mul_(0.5)
            dist.all_reduce(x)
            dist.all_reduce(x[:2], group=alone)
            if dist.get_rank() == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)
            prof.step()
    (folder,) = Path(base).glob(f"rank{dist.get_rank()}_*_ascend_pt")
    return str(folder / "ASCEND_PROFILER_OUTPUT")


_TIMES = {
    "Start Timestamp(us)", "Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)",
    "Idle Time(ms)", "Wait Time Ratio", "Synchronization Time Ratio",
}  # fmt: skip
_SIZE = (1 << 16) * 4 / 1e6  # MB


@pytest.fixture
def outputs(two_ranks, tmp_path) -> list[Path]:
    return [Path(output) for output in two_ranks.run(profile_of_collectives, str(tmp_path))]


def _json(path: Path):
    return json.loads(path.read_text())


def test_times_and_bytes_of_communication(outputs) -> None:
    names = []
    for rank, output in enumerate(outputs):
        communication = _json(output / "communication.json")
        assert set(communication) == {"step0", "step1"}
        for step in communication.values():
            for kind, count in (("collective", 2), ("p2p", 1)):
                total = step[kind].pop("Total Op Info")["Communication Time Info"]
                times = [operation["Communication Time Info"] for operation in step[kind].values()]
                assert len(times) == count and all(name.startswith("hcom_") for name in step[kind])
                assert total["Elapse Time(ms)"] == sum(t["Elapse Time(ms)"] for t in times) > 0
                assert set(times[0]) == _TIMES
        names.append([name for name in communication["step1"]["collective"]])
        links = next(iter(communication["step0"]["collective"].values()))["Communication Bandwidth Info"]
        assert set(links) == {"RDMA", "HCCS", "PCIE", "SDMA", "SIO"} and links["RDMA"]["Transit Size(MB)"] == 0
        # Half of the sum is this rank's to make and to give: with two ranks that is the whole size.
        assert links["HCCS"]["Transit Size(MB)"] == links["SDMA"]["Transit Size(MB)"] == pytest.approx(_SIZE)
        assert links["HCCS"]["Bandwidth(GB/s)"] > 0 and links["HCCS"]["Size Distribution"][f"{_SIZE:.6f}"][0] == 1
        (message,) = (o for n, o in communication["step0"]["p2p"].items())
        sent = message["Communication Bandwidth Info"]["HCCS"]["Transit Size(MB)"]
        assert sent == (pytest.approx(_SIZE) if rank == 0 else 0)
        groups = _json(output.parent / "profiler_metadata.json")["parallel_group_info"]
        assert {tuple(g["global_ranks"]) for g in groups.values()} == {(0, 1), (rank,)}
        assert {name.rpartition("@")[2] for name in names[-1]} == set(groups)
    assert names[0][0] == names[1][0]  # tools match the ranks' operations by name


def test_the_matrix_has_the_bytes_of_each_link(outputs) -> None:
    for rank, output in enumerate(outputs):
        step = _json(output / "communication_matrix.json")["step0"]
        sums = {name.partition("@")[0]: links for name, links in step["collective"].items()}
        assert set(sums) == {f"allreduce-{pick}" for pick in ("top1", "middle", "bottom1", "total")}
        (link,) = sums["allreduce-total"].items()
        assert link[0] == f"{rank}-{1 - rank}" and link[1]["Transport Type"] == "HCCS"
        assert link[1]["Transit Size(MB)"] == pytest.approx(_SIZE) and link[1]["Bandwidth(GB/s)"] > 0
        assert sums["allreduce-top1"][link[0]]["Op Name"].startswith("hcom_allReduce__")
        transfers = {name.partition("@")[0]: links for name, links in step["p2p"].items()}
        assert set(transfers[f"{('send', 'receive')[rank]}-total"]) == {"0-1"}


def test_communication_in_the_other_tables(outputs) -> None:
    for rank, output in enumerate(outputs):
        with open(output / "step_trace_time.csv", newline="") as file:
            steps = list(csv.DictReader(file))
        assert len(steps) == 2 and all(float(step["Communication"]) > 0 for step in steps)
        for step in steps:
            assert (float(step["Bubble"]) > 0) == (rank == 1)  # which receives
            parts = float(step["Communication(Not Overlapped)"]) + float(step["Overlapped"])
            assert parts == pytest.approx(float(step["Communication"]), abs=0.01)
        with open(output / "kernel_details.csv", newline="") as file:
            everything = list(csv.DictReader(file))
        assert {k["Name"].partition("::")[0] for k in everything if "::" in k["Name"]} == {"aten"}
        kernels = [k for k in everything if k["Accelerator Core"] == "COMMUNICATION"]
        assert [k["Type"] for k in kernels[:2]] == ["hcom_allReduce_"] * 2 and kernels[0]["Stream ID"] == "N/A"


def test_communication_in_the_trace(outputs) -> None:
    events = _json(outputs[0] / "trace_view.json")["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    names = {e["tid"]: e["args"]["name"] for e in events
             if e["name"] == "thread_name" and e["pid"] == processes["Communication"]}  # fmt: skip
    assert len(names) == 2 and all(name.endswith("Communication") for name in names.values())
    operations = [e for e in events if e["pid"] == processes["Communication"] and e["ph"] == "X"]
    assert [e["name"] for e in operations if e["args"]["size(Byte)"] == 8] == ["hccl:all_reduce"] * 2
    overlap = [e["name"] for e in events if e["pid"] == processes["Overlap Analysis"] and e["ph"] == "X"]
    assert {"Computing", "Communication", "Communication(Not Overlapped)"} <= set(overlap)
