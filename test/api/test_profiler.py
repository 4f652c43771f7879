"""torch_npu.profiler: schedules, the folder of results and what its tables say, dynamic profiling."""

import csv
import json
import threading

import pytest
import torch
import torch_npu
from torch_npu import profiler
from torch_npu.profiler.scheduler import Schedule

_ACTIONS = profiler.ProfilerAction


def _steps(prof, count: int, stream: torch.npu.Stream) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 64, device="npu")
    for _ in range(count):
        with torch.npu.stream(stream):
            x * 2
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two steps of a training, profiled with everything on."""
    base = tmp_path_factory.mktemp("profile")
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(base), worker_name="worker"),
        record_shapes=True,
        profile_memory=True,
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    ) as prof:
        prof.add_metadata("model", "two layers")
        prof.add_metadata_json("sizes", '{"batch": 16}')
        _steps(prof, 5, torch.npu.Stream())
    (result,) = base.iterdir()
    return result


def _rows(folder, name: str) -> list[dict[str, str]]:
    with open(folder / "ASCEND_PROFILER_OUTPUT" / name, newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder(folder) -> None:
    assert folder.name.startswith("worker_") and folder.name.endswith("_ascend_pt")
    names = {path.name for path in (folder / "ASCEND_PROFILER_OUTPUT").iterdir()}
    assert names == {
        "api_statistic.csv", "communication.json", "communication_matrix.json", "kernel_details.csv", "memory_record.csv", "op_statistic.csv",
        "operator_details.csv", "operator_memory.csv", "step_trace_time.csv", "trace_view.json",
    }  # fmt: skip
    info = json.loads((folder / "profiler_info.json").read_text())
    assert info["torch_npu_version"] == torch_npu.__version__
    common = info["config"]["common_config"]
    assert common["schedule"]["active"] == 2 and common["record_shapes"] is True and len(common["activities"]) == 2
    assert info["config"]["experimental_config"]["_profiler_level"] == "Level1"
    metadata = json.loads((folder / "profiler_metadata.json").read_text())
    assert (metadata["model"], metadata["sizes"]) == ("two layers", {"batch": 16})


_COLUMNS = {
    "kernel_details.csv": "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,"
    "Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,"
    "Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID",
    "operator_details.csv": "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),"
    "Device Self Duration(us),Device Total Duration(us),Device Self Duration With AICore(us),"
    "Device Total Duration With AICore(us)",
    "step_trace_time.csv": "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,"
    "Bubble,Communication(Not Overlapped and Exclude Receive),Preparing",
    "memory_record.csv": "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,"
    "Device Type",
    "operator_memory.csv": "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),"
    "Active Duration(us),Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
    "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type",
    "op_statistic.csv": "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),"
    "Ratio(%)",
    "api_statistic.csv": "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance",
}


@pytest.mark.parametrize("name", _COLUMNS)
def test_the_columns_that_analysis_tools_read(folder, name: str) -> None:
    with open(folder / "ASCEND_PROFILER_OUTPUT" / name, newline="") as file:
        header, *rows = list(csv.reader(file))
    assert ",".join(header) == _COLUMNS[name]
    assert rows and all(len(row) == len(header) for row in rows)


def test_kernels(folder) -> None:
    kernels = _rows(folder, "kernel_details.csv")
    products = [k for k in kernels if k["Name"] == "aten::addmm"]
    assert [k["Step Id"] for k in products] == ["2", "3"]
    assert products[0]["Input Shapes"].startswith("32;16,64;64,32") and products[0]["Accelerator Core"] == "AI_CORE"
    assert products[0]["Type"] == "Addmm" and products[0]["Stream ID"] == "0"
    assert {k["Stream ID"] for k in kernels if k["Name"] == "aten::mul"} - {"0"}
    assert not {"aten::t", "aten::empty", "aten::linear"} & {k["Name"] for k in kernels}
    starts = [float(k["Start Time(us)"]) for k in kernels]
    assert starts == sorted(starts) and all(float(k["Duration(us)"]) >= 0 for k in kernels)


def test_steps_and_statistics_add_up(folder) -> None:
    steps = _rows(folder, "step_trace_time.csv")
    assert [s["Step"] for s in steps] == ["2", "3"]
    for step in steps:
        assert float(step["Computing"]) + float(step["Free"]) == pytest.approx(float(step["Stage"]), abs=0.01)
        assert float(step["Communication"]) == 0
    kernels = _rows(folder, "kernel_details.csv")
    statistics = _rows(folder, "op_statistic.csv")
    assert sum(int(s["Count"]) for s in statistics) == len(kernels)
    assert sum(float(s["Ratio(%)"]) for s in statistics) == pytest.approx(100, abs=0.1)
    calls = _rows(folder, "api_statistic.csv")
    assert {call["API Name"] for call in calls} >= {"aten::linear", "aten::addmm"}
    assert {call["Level"] for call in calls} == {"op"}


def test_operators_hold_the_time_of_their_kernels(folder) -> None:
    operators = _rows(folder, "operator_details.csv")
    linear = next(o for o in operators if o["Name"] == "aten::linear")
    addmm = next(o for o in operators if o["Name"] == "aten::addmm")
    assert float(linear["Device Total Duration(us)"]) == float(addmm["Device Self Duration(us)"]) > 0
    assert float(linear["Device Self Duration(us)"]) == 0
    assert float(linear["Host Total Duration(us)"]) > float(linear["Host Self Duration(us)"]) > 0


def test_memory(folder) -> None:
    record = _rows(folder, "memory_record.csv")
    assert {r["Device Type"] for r in record} == {"NPU:0"} and float(record[0]["Total Reserved(MB)"]) >= 2
    product = next(r for r in _rows(folder, "operator_memory.csv") if r["Name"] == "aten::addmm")
    assert float(product["Size(KB)"]) == 2.0  # 16 x 32 float32
    assert float(product["Release Time(us)"]) > float(product["Allocation Time(us)"])


def test_the_trace_has_a_track_for_each_stream(folder) -> None:
    events = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())["traceEvents"]
    (pid,) = (e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "Ascend Hardware")
    about = {e["name"]: e["args"] for e in events if e["pid"] == pid and e["ph"] == "M"}
    assert about["process_labels"] == {"labels": "NPU 0"}
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["pid"] == pid and e["name"] == "thread_name"}
    device = [e for e in events if e["pid"] == pid and e["ph"] == "X"]
    assert tracks[0] == "Stream 0" and len(tracks) == 2 and {e["tid"] for e in device} == set(tracks)
    assert {e["name"] for e in device if e["tid"] != 0} == {"aten::mul"}


def test_arrows_lead_from_operators_to_their_kernels(folder) -> None:
    events = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())["traceEvents"]
    flows = [e for e in events if e.get("cat") == "async_npu"]
    starts, ends = ({e["id"]: e for e in flows if e["ph"] == phase} for phase in "sf")
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(starts) == len(ends) == len(kernels) > 10
    at = {
        (e["pid"], e["tid"], e["ts"]): e["name"]
        for e in events
        if e["ph"] == "X" and e.get("cat") in ("cpu_op", "kernel")
    }
    for number, start in starts.items():
        end = ends[number]
        assert at[start["pid"], start["tid"], start["ts"]] == at[end["pid"], end["tid"], end["ts"]]


def test_schedule() -> None:
    plan = Schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    none, warm, record, save = _ACTIONS.NONE, _ACTIONS.WARMUP, _ACTIONS.RECORD, _ACTIONS.RECORD_AND_SAVE
    assert [plan(step) for step in range(11)] == [none, *[none, warm, record, save] * 2, none, none]
    assert [Schedule(wait=2, active=1, skip_first_wait=1)(step) for step in range(4)] == [save, none, none, save]
    for wrong in ({"active": 0}, {"active": 1, "wait": -1}, {"active": 1, "repeat": 1.5}):
        with pytest.raises(ValueError, match="profiler schedule"):
            Schedule(**{"wait": 0, **wrong})


def test_without_a_schedule_and_without_tables(tmp_path) -> None:
    handler = profiler.tensorboard_trace_handler(str(tmp_path), analyse_flag=False)
    with profiler.profile(on_trace_ready=handler) as prof:
        torch.ones(2, device="npu") + 1
    assert "aten::add" in prof.key_averages().table() and "aten::add" in {e.name for e in prof.events()}
    (result,) = tmp_path.iterdir()
    assert [p.name for p in (result / "ASCEND_PROFILER_OUTPUT").iterdir()] == ["trace_view.json"]
    assert profiler.profiler.analyse(str(tmp_path)) is None
    with pytest.raises(FileNotFoundError, match="_ascend_pt"):
        profiler.profiler.analyse(str(tmp_path / "absent"))


def test_tables_written_in_a_thread_name_the_card_of_the_profile(tmp_path) -> None:
    handler = profiler.tensorboard_trace_handler(str(tmp_path), async_mode=True)
    with torch.npu.device(1), profiler.profile(on_trace_ready=handler):
        torch.ones(2, device="npu") + 1
    for thread in threading.enumerate():
        if thread.name == "profiler_analysis":
            thread.join()
    (result,) = tmp_path.iterdir()
    assert {row["Device_id"] for row in _rows(result, "kernel_details.csv")} == {"1"}


def test_a_profiler_driven_by_hand(tmp_path) -> None:
    prof = profiler._KinetoProfile(record_shapes=True)
    prof.start()
    torch.ones(2, device="npu").sum()
    prof.stop()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert "aten::sum" in (tmp_path / "trace.json").read_text()


def test_activities_of_cuda_scripts_mean_npu() -> None:
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as prof:
        torch.ones(2, device="npu") + 1
    assert profiler.ProfilerActivity.PrivateUse1 in prof.activities
    assert profiler.ProfilerActivity.CPU in profiler.supported_activities()


def test_options() -> None:
    level, metrics, kind = profiler.ProfilerLevel, profiler.AiCMetrics, profiler.ExportType
    with pytest.warns(UserWarning, match="collects nothing for: l2_cache$"):
        config = profiler._ExperimentalConfig(
            profiler_level=level.Level2, aic_metrics=metrics.PipeUtilization, l2_cache=True,
            export_type=[kind.Text, kind.Db],
        )  # fmt: skip
    assert config.profiler_level is level.Level2 and config.aic_metrics is metrics.PipeUtilization
    assert metrics.ArithmeticUtilization in profiler.supported_ai_core_metrics()
    assert {level.Level_none, level.Level0} <= profiler.supported_profiler_level()
    assert profiler.supported_export_type() == {kind.Text, kind.Db}
    with pytest.warns(UserWarning, match="host_sys"):
        profiler._ExperimentalConfig(host_sys=[profiler.HostSystem.CPU])
    with pytest.raises(TypeError, match="expected a ProfilerLevel"):
        profiler._ExperimentalConfig(profiler_level=1)
    with pytest.raises(TypeError, match="must be a torch_npu.profiler._ExperimentalConfig"):
        profiler.profile(experimental_config="Level1")
    with pytest.raises(ValueError, match="plain name"):
        profiler.tensorboard_trace_handler(worker_name="a/b")


def test_dynamic_profiling(tmp_path, monkeypatch) -> None:
    from torch_npu.profiler import dynamic_profile

    monkeypatch.setattr(dynamic_profile, "_monitor", dynamic_profile._Monitor())
    with pytest.raises(RuntimeError, match="needs init"):
        dynamic_profile.step()
    dynamic_profile.init(str(tmp_path / "watched"))
    path = tmp_path / "watched" / "profiler_config.json"
    config = {**json.loads(path.read_text()), "prof_dir": str(tmp_path / "out"), "active": 2, "metadata": {"run": 7}}
    dynamic_profile.step()
    assert not (tmp_path / "out").exists()
    path.write_text(json.dumps(config))
    for _ in range(3):
        dynamic_profile.step()
        torch.ones(2, device="npu") + 1
    (result,) = (tmp_path / "out").iterdir()
    assert json.loads((result / "profiler_metadata.json").read_text())["run"] == 7
    assert {row["Step Id"] for row in _rows(result, "kernel_details.csv")} == {"0", "1"}
    dynamic_profile.start(str(path))
    with pytest.raises(RuntimeError, match="running already"):
        dynamic_profile.start(str(path))
    dynamic_profile.step()
    dynamic_profile.step()
    assert len(list((tmp_path / "out").iterdir())) == 2
    dynamic_profile.set_state({"step": 3})
    assert dynamic_profile.get_state() == {"step": 3}


def test_dynamic_profiling_of_a_later_step_and_of_some_ranks(tmp_path, monkeypatch) -> None:
    from torch_npu.profiler import dynamic_profile

    monkeypatch.setattr(dynamic_profile, "_monitor", dynamic_profile._Monitor())
    dynamic_profile.init(str(tmp_path))
    path, out = tmp_path / "profiler_config.json", tmp_path / "out"

    def results_after(steps: int, **options) -> int:
        path.write_text(json.dumps({"prof_dir": str(out), **options}))
        for _ in range(steps):
            dynamic_profile.step()
            torch.ones(2, device="npu") + 1
        return len(list(out.iterdir())) if out.exists() else 0

    assert results_after(4, start_step=4) == 0  # it is running
    dynamic_profile.step()
    assert len(list(out.iterdir())) == 1
    monkeypatch.setenv("RANK", "1")
    assert results_after(3, is_rank=True, rank_list=[0, 2]) == 1
    assert results_after(3, is_rank=True, rank_list=[1], warmup=1) == 2
    with pytest.warns(UserWarning, match="has speed, but a dynamic profile takes only activities"):
        assert results_after(1, speed=5) == 2
    with pytest.raises(ValueError, match="has speed"):
        dynamic_profile.start(str(path))
    with pytest.warns(UserWarning, match="KeyError: 'Level9'"):
        assert results_after(1, experimental_config={"profiler_level": "Level9"}) == 2


def test_the_older_helper(tmp_path) -> None:
    from torch_npu.utils.profiler import Profile

    helper = Profile(start_step=1, save_path=str(tmp_path), profile_type="TORCH")
    for _ in range(3):
        helper.start()
        torch.ones(2, device="npu") + 1
        helper.end()
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match="profile_type"):
        Profile(profile_type="OTHER")
