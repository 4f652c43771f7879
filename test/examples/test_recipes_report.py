"""examples/recipes_report.py: two claims in miniature, and the arithmetic around them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import DEVICE, EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from claims import planned  # noqa: E402
from recipes_report import Row, at_least, rows_before, table  # noqa: E402

GIB = 2**30


@pytest.mark.skipif(DEVICE != "npu", reason="simulated servers are asked")
def test_a_claim_is_measured_on_a_simulated_server_and_written_down(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "recipes_report.py"), "--model", "tiny", "--only", "accumulation"]
    done = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    [(claim, row)] = json.loads((tmp_path / "report.json").read_text())["rows"].items()
    assert claim == "accumulation_memory" and rows_before(tmp_path, "Ascend910B2", "tiny") == {claim: Row(**row)}
    assert rows_before(tmp_path, "Ascend910B2", "7b") == {}
    # The activations of 2 sequences instead of 8, beside the same logits' workspace and parameters.
    assert 0.3 < row["measured"] < 0.75 and row["verdict"] in ("holds", "more")
    assert row["verdict"] in done.stdout and row["text"] in (tmp_path / "report.md").read_text()


def test_an_unknown_claim_is_refused_with_those_there_are() -> None:
    command = [sys.executable, str(EXAMPLES / "recipes_report.py"), "--only", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "pipeline_scaling" in done.stderr


def step_of_pipeline(stages: int) -> dict[str, float]:
    command = [sys.executable, str(EXAMPLES / "claims" / "pipeline.py"), "--model", "1b", "--layers", "15"]
    command += ["--stages", str(stages), "--micro-batches", "12"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout)


@pytest.mark.skipif(DEVICE != "npu", reason="needs the cards' clocks")
def test_a_pipeline_over_cards_takes_what_its_schedule_says() -> None:
    """4 stages, 12 micro-batches: 12 of 15 turns are work, and nothing else is lost but what stages are uneven by."""
    whole, split = step_of_pipeline(1), step_of_pipeline(4)
    efficiency = whole["seconds"] / split["seconds"] / 4
    assert efficiency == pytest.approx(12 / 15 * split["balance"], rel=0.05)


def server(base: float, each: float) -> Callable[..., planned.Planned]:
    """A stand-in for npu-plan: so many GiB, and so many more for each unit, of 60; a run ends where they are full."""

    def plan(_soc: str, _servers: int, batch: int) -> planned.Planned:
        needed = int((base + each * batch) * GIB)
        peak = min(needed, 60 * GIB)
        return planned.Planned(1.0, 1, peak, peak, 60 * GIB, 0.0, needed <= 60 * GIB)

    return plan


@pytest.mark.parametrize(
    ("base", "each", "step", "answer"),
    [(10, 3, 1, 16), (10, 3, 8, 16), (0.5, 0.1, 1, 595), (61, 1, 1, 0), (30, 29, 1, 1), (20, 12, 1, 3), (5, 13, 1, 4)],
)
def test_the_largest_that_fits_is_found(
    monkeypatch: pytest.MonkeyPatch, base: float, each: float, step: int, answer: int
) -> None:
    monkeypatch.setattr(planned, "plan", server(base, each))
    assert planned.largest("chip", "batch", step) == answer


def test_verdicts() -> None:
    assert [at_least(x, 1.5, 2.0) for x in (1.4, 1.5, 2.1)] == ["less", "holds", "more"]
    assert at_least(9.0, 1.5) == "holds"
    assert "| a | 2.00 | holds | b |" in table([Row("n", "a", None, 2.0, "holds", "b")])
