"""The examples that need no launcher: one card, and four cards in one process."""

import re

import pytest
from launching import DEVICE, EXAMPLES

SMALL_SPLIT = ("--corpus-mb", "1", "--vocab-size", "512", "--width", "64", "--heads", "2", "--work-dir", "tokens")


def losses(text: str) -> list[float]:
    """The second column of the table that an example prints."""
    return [float(row[1]) for row in re.findall(r"^ *(\d+)  +([\d.]+)", text, re.MULTILINE)]


def test_mlp_tells_the_spirals_apart(examples):
    text = examples.run("mlp.py")
    values = losses(text)
    assert values[-1] < 0.2 * values[0]
    accuracy = float(re.findall(r"^ *30 .* ([\d.]+)$", text, re.MULTILINE)[0])
    assert accuracy > 0.95


def test_four_cards_in_one_process_learn_as_one_card_does(examples):
    four = examples.run("model_parallel.py", *SMALL_SPLIT, "--steps", "20")
    one = examples.run("model_parallel.py", *SMALL_SPLIT, "--steps", "20", "--cards", "1")
    # The same operators on the same numbers; only the norm of the gradient is summed up per card first.
    assert losses(four) == pytest.approx(losses(one), rel=1e-4)
    assert losses(four)[-1] < losses(four)[0] - 0.5
    assert re.findall(r"\(stage (\d)\): (\d) blocks", four) == [(str(i), "2") for i in range(4)]


@pytest.mark.skipif(DEVICE != "npu", reason="HBM is counted on npu only")
def test_each_card_of_a_split_model_holds_its_own_part(examples):
    text = examples.run("model_parallel.py", *SMALL_SPLIT, "--steps", "2")
    peaks = {card: float(peak) for card, peak in re.findall(r"npu:(\d) .*peak HBM ([\d.]+) MiB", text)}
    assert list(peaks) == ["0", "1", "2", "3"]
    assert all(0.5 < peak < 64 for peak in peaks.values())


@pytest.mark.skipif(DEVICE != "npu", reason="only npu has a number of cards")
def test_split_over_more_cards_than_there_are(examples):
    done = examples.start("model_parallel.py", *SMALL_SPLIT, "--cards", "80", "--layers", "80")
    assert done.returncode != 0
    assert "--cards 80: this process sees" in done.stderr


def test_examples_are_written_for_any_npu():
    """All but the report on the recipes, which asks the simulator."""
    report = EXAMPLES / "recipes_report.py"
    for script in {*EXAMPLES.rglob("*.py")} - {report, *(EXAMPLES / "claims").iterdir()}:
        assert not re.search(r"torch_cann|TORCH_CANN|simulat", script.read_text()), (
            f"{script} knows about the simulator"
        )
