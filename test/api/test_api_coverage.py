"""The public surface of torch_npu is there, and stays there."""

import re
from collections import Counter
from pathlib import Path

import pytest
from torch_cann import _refused
from torch_cann.tools import api_coverage
from torch_cann.tools.api_coverage import Name, _takes_the_same_calls

_TESTS = Path(__file__).resolve().parents[1]
# To be raised when more is there, never lowered. Names are counted once for each module they are in.
_LEAST_WORKING = 425


@pytest.fixture(scope="module")
def states() -> dict[str, dict[str, str]]:
    return api_coverage.measure(_TESTS)


def _in_state(states: dict[str, dict[str, str]], wanted: str) -> set[str]:
    return {f"{module}.{name}" for module, names in states.items() for name, state in names.items() if state == wanted}


def test_every_public_name_is_there(states) -> None:
    assert _in_state(states, "missing") == set()


def test_every_name_takes_the_calls_that_torch_npu_takes(states) -> None:
    # PyTorch's own; torch_npu adds a splitter of graphs, with parameters `mode` and `atomic_units`.
    assert _in_state(states, "differs") == {"torch_npu.distributed.pipelining.pipeline"}


def test_the_number_of_working_names_does_not_fall(states) -> None:
    count = Counter(state for names in states.values() for state in names.values())
    assert count["works"] >= _LEAST_WORKING, api_coverage.report(states, names=False)


def test_every_refused_name_says_why(states) -> None:
    refused = _in_state(states, "refused")
    assert "torch_npu.npu.MemPool" in refused
    for module, name in ((m, n) for m, names in states.items() for n, state in names.items() if state == "refused"):
        value = api_coverage._resolve(Name(module, name, ""))
        said = f"{re.escape(name)}.* is not provided by torch_cann.*: {re.escape(value.__refused__)}"
        with pytest.raises(NotImplementedError, match=said):
            value()


def test_the_table_of_refusals_has_no_name_twice() -> None:
    for module, reasons in _refused._TABLE.items():
        names = [name for text in reasons.values() for name in text.split()]
        assert len(names) == len(set(names)), module


def test_comparison_of_signatures() -> None:
    def ours(a, b=1, *, c=2, extra=None):
        pass

    assert _takes_the_same_calls(ours, "(a, b=1, *, c=2)")
    assert _takes_the_same_calls(ours, "(self, a, b)")
    assert not _takes_the_same_calls(ours, "(b, a)")
    assert not _takes_the_same_calls(ours, "(a, b, d)")
    assert _takes_the_same_calls(lambda *args, **kwargs: None, "(x, y, *, z)")


def test_comments_and_docstrings_do_not_count_as_tests(tmp_path) -> None:
    (tmp_path / "test_x.py").write_text(
        '"""synchronize"""\n# set_device\nimport torch\n\n\ndef test():\n    """current_stream"""\n'
        '    torch.npu.memory_stats()\n    getattr(torch.npu, "is_available")()\n    run("import torch; torch.npu.init()")\n'
    )
    found = api_coverage.names_in_tests(tmp_path)
    assert found >= {"memory_stats", "is_available", "init"}
    assert not found & {"synchronize", "set_device", "current_stream"}


def test_states_of_names() -> None:
    tested = {"synchronize"}
    assert api_coverage.state(Name("torch_npu.npu", "synchronize", "(device=None)"), tested) == "works"
    assert api_coverage.state(Name("torch_npu.npu", "synchronize", "(device=None)"), set()) == "present"
    assert api_coverage.state(Name("torch_npu.npu", "synchronize", "(stream)"), tested) == "differs"
    assert api_coverage.state(Name("torch_npu.npu", "no_such_name", ""), tested) == "missing"
    assert api_coverage.state(Name("torch_npu.no_such_module", "name", ""), tested) == "missing"
    assert api_coverage.state(Name("torch_npu.npu", "set_aoe", "(dump_path)"), tested) == "refused"


def test_the_command(run_python) -> None:
    code = """
import subprocess, sys
command = [sys.executable, "-m", "torch_cann.tools.api_coverage", "--names"]
print(subprocess.run(command, capture_output=True, text=True).stdout)
"""
    assert run_python(code).startswith("all ")
