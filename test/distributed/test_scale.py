"""Sixty-four ranks on whatever cores there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_64_ranks_connect_work_and_leave() -> None:
    script = Path(__file__).with_name("scale.py")
    done = subprocess.run(
        [sys.executable, str(script), "--ranks", "64"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["ranks"] == 64
    assert result["seconds"]["connect"] < 60
