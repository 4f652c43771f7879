"""ExportType.Db: what the tables of ascend_pytorch_profiler.db say of a training on one card."""

import os
import sqlite3

import pytest
import torch
from torch_cann.profiler._database import _Profile
from torch_cann.profiler._records import Event, Recording
from torch_npu import profiler

_NAMED = "SELECT {} FROM {} JOIN STRING_IDS AS name ON name.id = {}.name"


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    base = tmp_path_factory.mktemp("profile")
    model = torch.nn.Linear(64, 32).npu()
    with profiler.profile(
        schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(base)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=profiler._ExperimentalConfig(
            export_type=[profiler.ExportType.Text, profiler.ExportType.Db]
        ),
    ) as prof:
        prof.add_metadata("model", "one layer")
        for _ in range(3):
            model(torch.randn(16, 64, device="npu")).sum().backward()
            prof.step()
    (folder,) = base.iterdir()
    return folder / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture(scope="module")
def database(output):
    return sqlite3.connect(output / "ascend_pytorch_profiler.db")


def test_both_forms_are_written(output) -> None:
    names = {path.name for path in output.iterdir()}
    assert names >= {"ascend_pytorch_profiler.db", "analysis.db", "trace_view.json", "kernel_details.csv"}


def test_what_is_said_once(database) -> None:
    def only(query: str):
        (row,) = database.execute(query).fetchall()
        return row

    assert only("SELECT id, name FROM NPU_INFO") == (0, torch.npu.get_device_name(0))
    assert only("SELECT rankId, deviceId FROM RANK_DEVICE_MAP") == (-1, 0)
    assert only("SELECT value FROM META_DATA WHERE name = 'SCHEMA_VERSION'") == ("1.1.0",)
    assert only("SELECT value FROM META_DATA WHERE name = 'model'") == ('"one layer"',)
    assert only("SELECT name FROM ENUM_API_TYPE WHERE id = 50001") == ("op",)
    assert all(only("SELECT hostUid, hostName FROM HOST_INFO"))
    start, end = only("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO")
    steps = database.execute("SELECT id, startNs, endNs FROM STEP_TIME").fetchall()
    assert [step[0] for step in steps] == [1, 2] and start <= steps[0][1] < steps[1][2] <= end
    assert database.execute("SELECT count(*) FROM COMMUNICATION_OP").fetchone() == (0,)


def test_a_kernel_is_joined_with_its_operator(database) -> None:
    """By the numbers of connections, as tools do it."""
    kernels = database.execute(
        "SELECT op.value, core.value, shapes.value, api.value FROM COMPUTE_TASK_INFO AS info "
        "JOIN TASK ON TASK.globalTaskId = info.globalTaskId JOIN STRING_IDS AS op ON op.id = info.name "
        "JOIN STRING_IDS AS core ON core.id = TASK.taskType JOIN STRING_IDS AS shapes ON shapes.id = info.inputShapes "
        "JOIN CONNECTION_IDS AS joint ON joint.connectionId = TASK.connectionId "
        "JOIN PYTORCH_API ON PYTORCH_API.connectionId = joint.id JOIN STRING_IDS AS api ON api.id = PYTORCH_API.name"
    ).fetchall()
    assert len(kernels) == database.execute("SELECT count(*) FROM COMPUTE_TASK_INFO").fetchone()[0] > 10
    assert all(kernel[0] == kernel[3] for kernel in kernels)
    assert [kernel[1:3] for kernel in kernels if kernel[0] == "aten::addmm"] == [("AI_CORE", "32;16,64;64,32;;")] * 2


def test_operators_have_shapes_numbers_and_stacks(database) -> None:
    columns = "inputShapes, inputDtypes, sequenceNumber, callchainId, type, startNs, endNs"
    query = _NAMED.format(columns, "PYTORCH_API", "PYTORCH_API") + " WHERE name.value = 'aten::linear'"
    first, _ = database.execute(query).fetchall()
    text = dict(database.execute("SELECT id, value FROM STRING_IDS"))
    assert text[first[0]] == "16,64;32,64;32" and text[first[1]] == "float;float;float" and first[2] >= 0
    assert first[4] == 50001 and first[6] > first[5]
    stack = database.execute("SELECT stack FROM PYTORCH_CALLCHAINS WHERE id = ? ORDER BY stackDepth", (first[3],))
    frames = [text[frame] for (frame,) in stack]
    assert "linear" in frames[0] and any("nn.Module: Linear" in frame for frame in frames)


def test_memory(database) -> None:
    blocks = database.execute(
        _NAMED.format("size, duration, releaseTime - allocationTime, deviceId", "OP_MEMORY", "OP_MEMORY")
        + " WHERE name.value = 'aten::addmm'"
    ).fetchall()
    assert len(blocks) == 2 and all(b[0] == 2048 and b[1] == b[2] > 0 and b[3] == 0 for b in blocks)
    highest, reserved = database.execute("SELECT max(totalAllocated), max(totalReserved) FROM MEMORY_RECORD").fetchone()
    assert 2048 < highest <= reserved


def test_a_thread_without_a_number() -> None:
    """What PyTorch makes of the frames that a Python thread was in before the profile began."""
    event = Event("work", 1, 2, 2**64 - 1, [], [], True, False)
    ((_, _, thread, *_),) = _Profile(Recording([event], []), 0).apis()
    assert thread == os.getpid() << 32 | 0xFFFFFFFF
