"""The scripts of examples/large_models, each as a user starts it, in sizes that take seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import DEVICE, EXAMPLES, launch, printed

SMALL = ("--hidden-size", "64", "--num-layers", "4", "--seq-len", "32")

pytestmark = pytest.mark.skipif(DEVICE != "npu", reason="these scripts are for npu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("large_models")


def run(folder: Path, script: str, *options: str, ranks: int = 0, **environment: str) -> str:
    return printed(launch(folder, f"large_models/{script}", *options, processes=ranks, **environment))


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"Loss: ([\d.]+)", text)]


def test_data_parallel(folder):
    values = losses(run(folder, "data_parallel.py", *SMALL, "--steps", "11", ranks=2))
    assert len(values) == 3
    assert values[-1] < values[0] - 1.0


def test_micro_batches_over_four_cards_as_on_one(folder):
    four = losses(run(folder, "micro_batches.py", *SMALL, "--steps", "6", "--batch-size", "7"))
    one = losses(run(folder, "micro_batches.py", *SMALL, "--steps", "6", "--batch-size", "7", "--cards", "1"))
    assert four == pytest.approx(one, abs=2e-4)
    assert four[-1] < four[0] - 1.0


def test_parallel_groups(folder):
    lines = run(folder, "parallel_groups.py", ranks=8).splitlines()
    assert len(lines) == 8
    assert lines[5] == "Rank 5: DP=1, MP=0, PP=1, groups {'data': [4, 5], 'model': [5, 7], 'pipeline': [1, 5]}"
    for kind in ("data", "model", "pipeline"):
        groups = {match for line in lines for match in re.findall(rf"'{kind}': \[([\d, ]+)\]", line)}
        assert sorted(int(rank) for group in groups for rank in group.split(", ")) == list(range(8))


def test_zero_stages(folder):
    answers = {}
    for stage in ("1", "2", "3"):
        text = run(folder, "zero.py", *SMALL, "--steps", "6", "--stage", stage, ranks=2)
        held = re.search(r"rank 0 holds ([\d,]+) parameters and ([\d,]+) numbers of optimizer state", text)
        answers[stage] = losses(text), *(int(number.replace(",", "")) for number in held.groups())
    for values, _, _ in answers.values():
        assert values == pytest.approx(answers["1"][0], abs=2e-4)
    whole = answers["1"][1]
    assert answers["3"][1] == pytest.approx(whole / 2, rel=0.01)
    for _, _, state in answers.values():
        assert state == pytest.approx(whole, rel=0.1)  # two moments, of half of the parameters


def test_zero_in_mixed_precision(folder):
    values = losses(run(folder, "zero.py", *SMALL, "--steps", "6", "--mixed-precision", ranks=2))
    assert values[-1] < values[0] - 1.0


def test_mixed_precision_by_the_names_of_cuda(folder):
    text = run(folder, "mixed_precision.py", *SMALL, "--steps", "6")
    assert losses(text)[-1] < losses(text)[0] - 1.0
    assert text.count("torch.float16, scale 65536") == 2


def test_gradient_accumulation_is_the_large_batch_with_less_memory(folder):
    def answer(batch: str, steps: str) -> tuple[list[float], float]:
        options = (*SMALL, "--steps", "6", "--batch-size", batch, "--accumulation-steps", steps)
        text = run(folder, "gradient_accumulation.py", *options)
        return losses(text), float(re.search(r"peak memory ([\d.]+) MiB", text)[1])

    small, large = answer("4", "8"), answer("32", "1")
    assert small[0] == pytest.approx(large[0], abs=2e-4)
    assert small[1] < large[1] / 2


def test_checkpointing_changes_no_loss_and_saves_memory(folder):
    text = run(folder, "checkpointed_transformer.py", *SMALL[:4], "--steps", "2")
    rows = re.findall(r"losses (\[.*\]), peak of a step ([\d.]+) MiB", text)
    assert rows[0][0] == rows[1][0]
    assert float(rows[1][1]) < float(rows[0][1]) / 2


FULL = (*SMALL, "--vocab-size", "512", "--corpus-mb", "1", "--log-every", "2", "--save-every", "4")


def test_full_training_goes_on_from_a_checkpoint(folder):
    def train(name: str, *options: str) -> str:
        return run(folder, "full_training.py", *FULL, "--data", "stdlib", "--work-dir", name, *options, ranks=2)

    whole = train("whole", "--steps", "8")
    assert "Text: stdlib" in whole
    assert losses(whole)[-1] < losses(whole)[0]
    (folder / "whole" / "checkpoint_8.pt").unlink()
    resumed = train("whole", "--steps", "8", "--resume")
    assert re.findall(r"Step.*", resumed) == re.findall(r"Step [68].*", whole)


def test_full_training_on_wikitext(folder, tmp_path):
    """With stand-ins for the two libraries: what the script asks of them, and what it makes of the answers."""
    (tmp_path / "datasets.py").write_text(
        "class _Rows(dict):\n"
        "    def map(self, function, batched, remove_columns):\n"
        "        assert batched and remove_columns == ['text']\n"
        "        return function(self)\n"
        "def load_dataset(name, config, split):\n"
        "    assert (name, config, split) == ('wikitext', 'wikitext-103-v1', 'train')\n"
        "    return _Rows(text=['one two three ' * 100] * 30)\n"
    )
    (tmp_path / "transformers.py").write_text(
        "class GPT2Tokenizer:\n"
        "    @classmethod\n"
        "    def from_pretrained(cls, name):\n"
        "        assert name == 'gpt2'\n"
        "        return cls()\n"
        "    def __len__(self):\n"
        "        return 50\n"
        "    def __call__(self, texts):\n"
        "        return {'input_ids': [[len(word) + 7 for word in text.split()] for text in texts]}\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    text = run(folder, "full_training.py", *FULL, "--steps", "4", "--work-dir", "wiki", ranks=1, PYTHONPATH=path)
    assert "Text: wikitext, 281 sequences, vocabulary 50" in text
    assert losses(text)[-1] < losses(text)[0]


def test_llama_7b_in_a_dry_run(folder):
    """Six of its 32 layers: a layer's time and memory are what matters, and repeat."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_CANN_")}
    command = [sys.executable, "-m", "npu_plan", "run", "--nproc-per-node", "8", "--steps", "2", "--json", "plan.json"]
    command += ["--soc", "Ascend910B2", str(EXAMPLES / "large_models" / "llama_7b.py")]
    command += ["--num-layers", "6", "--accumulation-steps", "2"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "1.48 B parameters, 64 sequences a step" in done.stdout
    report = json.loads((folder / "plan.json").read_text())
    (rank,) = report["ranks"]
    assert rank["memory"]["parameters"] == pytest.approx(1.476e9 * 4 / 8, rel=0.01)  # float32, an eighth of them
    assert rank["memory"]["optimizer"] == pytest.approx(2 * rank["memory"]["parameters"], rel=0.01)
    # 6 N FLOP a token and 2 N for the layers that are computed again, at the peak of 353.9 TFLOPS: more than 0.5 s.
    assert 0.5 < report["step"]["seconds"] < 5


def test_llama_trains_for_real_when_small(folder):
    size = ("--vocab-size", "64", "--hidden-size", "32", "--num-layers", "2", "--num-heads", "2")
    more = ("--intermediate-size", "64", "--seq-len", "16", "--steps", "2")
    text = run(folder, "llama_7b.py", *size, *more, ranks=2)
    assert float(re.search(r"loss ([\d.]+);", text)[1]) == pytest.approx(4.16, abs=0.1)  # ln 64: tokens are random
