"""What the README says about scripts and links is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import DEVICE

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.skipif(DEVICE != "npu", reason="the README's script is for npu")
def test_script_runs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(losses) == 3
    assert losses[2] < losses[0]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)]+)\)", README))))
def test_link_leads_somewhere(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("script", sorted(set(re.findall(r"`(examples/[\w/]+\.py)`", README))))
def test_named_script_is_there(script):
    assert (ROOT / script).is_file()
