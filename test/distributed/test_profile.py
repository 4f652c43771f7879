"""A profile of a training on several cards: what the tables say of communication."""

from __future__ import annotations

import csv
import json
import sqlite3
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import device

from torch_cann.profiler._groups import number_of


def profile_of_collectives(base: str, export: str = "text") -> str:
    from torch_npu import profiler

    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1, export_type=profiler.ExportType(export)
    )
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


def profile_with_a_late_rank(base: str) -> str:
    from torch_npu import profiler

    x = torch.ones(1 << 20, device=device())
    dist.all_reduce(x)
    with profiler.profile(
        on_trace_ready=profiler.tensorboard_trace_handler(base, worker_name=f"rank{dist.get_rank()}"),
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    ):
        dist.all_reduce(x)  # profilers start at different times
        if dist.get_rank() == 1:
            time.sleep(_LATE)
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            time.sleep(_LATE)
            dist.send(x, 0)
        else:
            dist.recv(x, 1)
    (folder,) = Path(base).glob(f"rank{dist.get_rank()}_*_ascend_pt")
    return str(folder / "ASCEND_PROFILER_OUTPUT")


_LATE = 0.2
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
        assert {name.rpartition("@")[2] for name in names[-1]} == {number_of(name) for name in groups}
    assert names[0][0] == names[1][0]  # tools match the ranks' operations by name


def test_the_matrix_has_the_bytes_of_each_link(outputs) -> None:
    for rank, output in enumerate(outputs):
        step = _json(output / "communication_matrix.json")["step0"]
        world = f"@{number_of('hccl_0')}"
        sums = {n.removesuffix(world): links for n, links in step["collective"].items() if n.endswith(world)}
        assert set(sums) == {f"allreduce-{pick}" for pick in ("top1", "middle", "bottom1", "total")}
        links = sums["allreduce-total"]
        assert {link: row["Transport Type"] for link, row in links.items()} == {
            f"{rank}-{rank}": "LOCAL", f"{rank}-{1 - rank}": "HCCS"
        }  # fmt: skip
        between = links[f"{rank}-{1 - rank}"]
        assert between["Transit Size(MB)"] == pytest.approx(_SIZE) and between["Bandwidth(GB/s)"] > 0
        assert sums["allreduce-top1"][f"{rank}-{1 - rank}"]["Op Name"].startswith("hcom_allReduce__")
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


def test_waiting_for_a_late_rank_is_not_transit(two_ranks, tmp_path) -> None:
    early, late = (
        {
            kind: [entry for name, entry in entries.items() if name != "Total Op Info"][-1]["Communication Time Info"]
            for kind, entries in _json(Path(output) / "communication.json")["step"].items()
        }
        for output in two_ranks.run(profile_with_a_late_rank, str(tmp_path))
    )
    for times in early.values():
        assert times["Elapse Time(ms)"] >= times["Synchronization Time(ms)"] > _LATE * 1000 / 2
        assert times["Wait Time(ms)"] >= times["Synchronization Time(ms)"] and times["Wait Time Ratio"] > 0.5
        parts = sum(times[f"{part} Time(ms)"] for part in ("Transit", "Wait", "Idle"))
        assert parts == pytest.approx(times["Elapse Time(ms)"])
    assert late["collective"]["Wait Time(ms)"] < early["collective"]["Wait Time(ms)"]
    assert late["p2p"]["Wait Time(ms)"] == 0  # who sends is not measured


def test_the_databases(two_ranks, tmp_path) -> None:
    for rank, output in enumerate(two_ranks.run(profile_of_collectives, str(tmp_path), "db")):
        assert {p.name for p in Path(output).iterdir()} == {f"ascend_pytorch_profiler_{rank}.db", "analysis.db"}
        profile, analysis = (
            sqlite3.connect(Path(output) / name) for name in (f"ascend_pytorch_profiler_{rank}.db", "analysis.db")
        )
        operations = profile.execute(
            "SELECT name.value, kind.value, communicator.value, type.name, count, deviceId, endNs > startNs "
            "FROM COMMUNICATION_OP AS op JOIN STRING_IDS AS name ON name.id = opName JOIN STRING_IDS AS kind ON kind.id "
            "= opType JOIN STRING_IDS AS communicator ON communicator.id = groupName JOIN ENUM_HCCL_DATA_TYPE AS type ON "
            "type.id = dataType ORDER BY startNs"
        ).fetchall()
        assert len(operations) == 6
        assert operations[0][1:] == ("hcom_allReduce_", "hccl_0", "FP32", 1 << 16, rank, 1)
        assert operations[2][1] == ("hcom_send_", "hcom_receive_")[rank]
        (info,) = profile.execute("SELECT value FROM META_DATA WHERE name = 'parallel_group_info'").fetchone()
        assert json.loads(info)["hccl_0"]["global_ranks"] == [0, 1]
        assert profile.execute("SELECT * FROM RANK_DEVICE_MAP").fetchall() == [(rank, rank)]
        moved = profile.execute(
            "SELECT srcRank, dstRank, size FROM COMMUNICATION_TASK_INFO AS info JOIN TASK ON TASK.globalTaskId = "
            "info.globalTaskId JOIN STRING_IDS ON STRING_IDS.id = name WHERE value = 'Memcpy' AND opId = 0"
        ).fetchall()
        assert moved == [(rank, 1 - rank, (1 << 16) * 4)]
        assert [n for (n,) in analysis.execute("SELECT hccl_op_name FROM CommAnalyzerTime WHERE step = 'step0' AND "
                                               "type = 'collective' AND group_name = ?", (number_of("hccl_0"),))] == [
            operations[0][0]
        ]  # fmt: skip
        assert {row[0] for row in analysis.execute("SELECT transport_type FROM CommAnalyzerMatrix")} == {
            "HCCS",
            "LOCAL",
        }
        assert [s for (s,) in analysis.execute("SELECT step FROM StepTraceTime")] == ["0", "1"]
        assert analysis.execute("SELECT count(*) FROM CommAnalyzerBandwidth WHERE transit_size > 0").fetchone()[0] > 0
