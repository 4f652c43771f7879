"""npu-smi: what it says of cards and of processes that hold their memory."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch_cann.tools._processes as processes
from torch_cann.tools import npu_smi

_HOLDER = """
import sys, torch
x = torch.ones(64 << 20, dtype=torch.uint8, device="npu:1")
print("ready", flush=True)
sys.stdin.readline()
del x
torch.npu.empty_cache()
print("freed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_CANN_RUNTIME_DIR", str(tmp_path / "records"))
    return tmp_path / "records"


def _holder() -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_and_its_memory(own_folder, capsys) -> None:
    process = _holder()
    try:
        assert npu_smi.main(["info", "--json"]) == 0
        cards = json.loads(capsys.readouterr().out)["cards"]
        (use,) = cards[1]["processes"]
        assert use["pid"] == process.pid and 64 << 20 <= use["used_bytes"] - npu_smi.CONTEXT_BYTES <= 128 << 20
        assert cards[0]["processes"] == [] and cards[1]["hbm_used_bytes"] == use["used_bytes"]

        assert npu_smi.main(["info"]) == 0
        table = capsys.readouterr().out
        assert f"| {process.pid} " in table and "No running processes found in NPU 0" in table
        assert {len(line) for line in table.splitlines()} == {98}
        assert npu_smi.main(["info", "-t", "proc-mem", "-i", "1"]) == 0
        assert f"Process id:{process.pid}" in capsys.readouterr().out

        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "freed\n"
        assert npu_smi.cards()[1].processes == []
    finally:
        process.communicate("\n", timeout=60)
    assert list(own_folder.iterdir()) == []


def test_a_killed_process_is_forgotten(own_folder) -> None:
    process = _holder()
    process.kill()
    process.communicate(timeout=60)
    assert [p.name for p in own_folder.iterdir()] == [str(process.pid)]
    assert processes.uses() == [] and list(own_folder.iterdir()) == []


def test_records_that_are_not_valid_are_not_believed(own_folder) -> None:
    own_folder.mkdir()
    (own_folder / str(os.getppid())).write_bytes(b"CANNPROC" + b"\0" * 100)  # alive, another start time
    (own_folder / "notes").write_text("not a record")
    assert processes.uses() == []
    assert len(list(own_folder.iterdir())) == 2


def test_a_folder_of_others_is_not_written_to(tmp_path, run_python) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    code = "import torch; print(torch.ones(2, device='npu').sum().item())"
    assert run_python(code, TORCH_CANN_RUNTIME_DIR=str(folder)) == "2.0"
    assert list(folder.iterdir()) == []


def test_a_forked_child_leaves_the_record_to_its_parent(own_folder, run_python) -> None:
    code = """
import os, torch
torch.ones(2, device="npu")
if (child := os.fork()) == 0:
    os._exit(0)
os.waitpid(child, 0)
print(os.listdir(os.environ["TORCH_CANN_RUNTIME_DIR"]) == [str(os.getpid())])
"""
    assert run_python(code) == "True"


def test_listings(own_folder, capsys) -> None:
    count = len(npu_smi.cards())
    assert npu_smi.main(["info", "-l"]) == 0
    listing = capsys.readouterr().out
    assert listing.splitlines()[0].split() == ["Total", "Count", ":", str(count)] and listing.count("NPU ID") == count
    assert npu_smi.main(["info", "-m"]) == 0
    assert "Ascend 910B2" in capsys.readouterr().out
    for kind in ("usages", "memory"):
        assert npu_smi.main(["info", "-t", kind, "-i", "0"]) == 0
        assert "HBM Capacity(MB)               : 62420" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        ("board", "Product Name                   : Ascend910B2"),
        ("common", "Aicore Count                   : 24"),
        ("health", "Health Status                  : OK"),
        ("power", "Power Dissipation(W)           : NA"),
        ("temp", "Temperature(C)                 : NA"),
        ("proc-mem", "No process in device."),
    ],
)
def test_facts_of_a_kind(own_folder, capsys, kind: str, fact: str) -> None:
    assert npu_smi.main(["info", "-t", kind, "-i", "2"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("\tNPU ID                         : 2\n") and f"\t{fact}" in output


# As the real tool prints it, without the figures: where columns and lines begin is what scripts that read it rely on.
_LAYOUT = """\
+------------------------------------------------------------------------------------------------+
| npu-smi                          Version:                                                      |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B2               | OK            | NA          NA                0    / 0             |
| 0                         | NA            | NA          0    / 0          0    / 62420         |
+===========================+===============+====================================================+
"""


def test_the_layout_of_the_table(own_folder, capsys) -> None:
    assert npu_smi.main(["info", "-i", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("| npu-smi ") and "Version: " in lines[1]
    wanted = _LAYOUT.splitlines()
    assert [lines[0], *lines[2:9]] == [wanted[0], *wanted[2:9]]


def test_wrong_arguments(own_folder, capsys) -> None:
    assert npu_smi.main(["info", "-t", "usages", "-i", "99"]) == 1
    assert "there is no chip 0 of NPU 99" in capsys.readouterr().err
    assert npu_smi.main(["info", "-t", "usages", "-i", "0", "-c", "1"]) == 1
    for wrong in (
        ["info", "-t", "weather"],
        ["info", "-i", "first"],
        ["info", "watch", "-d", "-1"],
        ["information"],
        [],
    ):
        with pytest.raises(SystemExit) as ended:
            npu_smi.main(wrong)
        assert ended.value.code == 2 and "npu-smi" in capsys.readouterr().err


def test_watching(own_folder) -> None:
    command = [sys.executable, "-m", "torch_cann.tools.npu_smi", "info", "watch", "-d", "0.1", "-l"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = 0
    deadline = time.monotonic() + 60
    while seen < 2 and time.monotonic() < deadline:
        seen += "Total Count" in process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    assert seen == 2
