"""The Python in docs/ runs as it stands, and the commands are those that there are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_cann.tools import npu_smi

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in sorted(_DOCS.glob("*.md"))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", _EXAMPLES)
def test_an_example(code: str, tmp_path) -> None:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # two that wait for each other take minutes on a busy machine
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=one_thread, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_commands_of_npu_smi() -> None:
    commands = re.findall(r"^    npu-smi (info.*?)  ", (_DOCS / "memory.md").read_text(), re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        npu_smi._parser().parse_args(command.split())


@pytest.mark.parametrize("page", sorted(_DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target.partition("#")[0]).exists(), target
