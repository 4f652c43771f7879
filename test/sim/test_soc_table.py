"""The chip table: every figure has a source, and users can bring their own."""

import re
from pathlib import Path

_TABLE = Path(__file__).resolve().parents[2] / "csrc" / "sim" / "soc.toml"


def test_every_figure_names_a_source_that_the_header_explains() -> None:
    text = _TABLE.read_text()
    known = set(re.findall(r"^#   ([A-Z]\w*)  ", text, re.MULTILINE))
    assert {"H1", "EST", "MEM"} <= known
    figures = [line for line in text.splitlines() if re.match(r"\w+ = [\d.]", line)]
    assert len(figures) > 80
    unexplained = [
        line for line in figures if not re.search(r"# (\w+)", line) or re.search(r"# (\w+)", line)[1] not in known
    ]
    assert unexplained == []


def test_estimates_say_what_they_rest_on() -> None:
    estimates = re.findall(r"# EST(.*)", _TABLE.read_text())
    assert estimates
    assert all(
        len(reason.split()) >= 2 for reason in estimates if reason.strip() != "our estimate, for the reason given"
    )


def test_chips_lists_the_table(npu_plan) -> None:
    done = npu_plan("chips")
    assert done.returncode == 0
    assert "Ascend910B2 " in done.stdout
    assert "353.9" in done.stdout


def test_a_file_adds_a_chip(npu_plan, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[Mine]\nbase = "Ascend910B2"\nhbm_gbps = 3200 # measured\n')
    done = npu_plan("chips", "--soc-file", "mine.toml")
    assert re.search(r"^Mine .*3200$", done.stdout, re.MULTILINE)


def test_a_bad_file_is_refused_with_its_line(npu_plan, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[Mine]\nfrobs = 1\n")
    done = npu_plan("chips", "--soc-file", "bad.toml")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert 'bad.toml:2: there is no figure "frobs"' in done.stderr
