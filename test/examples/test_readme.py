"""What the README says about scripts and variables is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEVICE

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

# Read, but not settings of this project: the launcher's and Gloo's, and a fallback that has no row of its own.
OF_OTHERS = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "GLOO_SOCKET_IFNAME", "PYTORCH_ALLOC_CONF",
             "XDG_RUNTIME_DIR"}


@pytest.mark.skipif(DEVICE != "npu", reason="the README's script is for npu")
def test_script_runs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(losses) == 3
    assert losses[2] < losses[0]


def test_table_has_every_variable_that_is_read():
    read = set()
    for source in (ROOT / "csrc").glob("*/*env.cpp"):
        read.update(re.findall(r'"([A-Z][A-Z0-9_]{3,})"', source.read_text()))
    for source in (ROOT / "torch_cann").rglob("*.py"):
        read.update(re.findall(r'environ\.get\("([A-Z0-9_]+)"', source.read_text()))
    # Those of HCCL that hardly anybody sets are in a table of their own, several to a row.
    tables = README + (ROOT / "docs" / "distributed.md").read_text()
    rows = re.findall(r"^\| (`[A-Z0-9_]+`(?:, `[A-Z0-9_]+`)*) \|", tables, re.MULTILINE)
    described = set(re.findall(r"`([A-Z0-9_]+)`", " ".join(rows)))
    assert described - {"TORCH_DEVICE_BACKEND_AUTOLOAD"} == read - OF_OTHERS


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_link_leads_somewhere(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("script", sorted(set(re.findall(r"`(examples/[\w/]+\.py)`", README))))
def test_named_script_is_there(script):
    assert (ROOT / script).is_file()
