"""Environment variables: one list, which is what the sources read and what the page says."""

import re
from pathlib import Path

import pytest
from torch_cann import _variables
from torch_cann.tools import environment

_ROOT = Path(__file__).resolve().parents[2]
# Calls that read a variable, in C++ and in Python.
_READS = re.compile(
    r'(?:getenv\(|lookup\(|lookup, |integer\(|renamed\(|parsed\(|one_of\(|text\('
    r'|environ\.(?:get|setdefault|pop)\(|environ\[)"([A-Z_0-9]+)"'
)


def _names_in_sources() -> set[str]:
    files = [*(_ROOT / "csrc").rglob("*.cpp"), *(_ROOT / "torch_cann").rglob("*.py")]
    assert files
    return {name for file in files for name in _READS.findall(file.read_text(encoding="utf-8"))}


# Read by PyTorch, or in a loop over names.
_READ_ELSEWHERE = {
    "GLOO_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
}


def test_the_list_is_what_the_sources_read() -> None:
    listed = _variables.names_read()
    assert len(listed) == len(set(listed))
    ignored = {name for names in _variables.WITHOUT_EFFECT.values() for name in names.split()}
    assert not ignored & set(listed)
    read = _names_in_sources()
    assert read - set(listed) - set(_variables.SET_BY_OTHERS) - ignored == set()
    assert set(listed) - read - _READ_ELSEWHERE == set()


def test_the_list_is_in_order() -> None:
    for variables in _variables.READ.values():
        assert [v.name for v in variables] == sorted(v.name for v in variables)


def test_the_page_is_current() -> None:
    assert (_ROOT / "docs" / "environment.md").read_text(encoding="utf-8") == environment.page()


def test_unknown_names_are_said_in_a_warning(run_python) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
print([str(w.message) for w in caught if "environment variable" in str(w.message)])
"""
    said = run_python(code, TORCH_CANN_SIMULATED="1", TORCH_CANN_SOC="Ascend910B2")
    assert said == (
        "['the environment variable TORCH_CANN_SIMULATED is not known and has no effect, "
        "did you mean TORCH_CANN_SIMULATE?']"
    )


def test_a_replaced_value_is_said_in_a_warning(run_python) -> None:
    code = "import os, torch; os.dup2(1, 2); torch.npu.init()"  # standard error, where C++ warns, is read too
    assert 'STREAMS_PER_DEVICE="5" is neither 8 nor 32' in run_python(code, STREAMS_PER_DEVICE="5")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ASCEND_LAUNCH_BLOCKING": "1", "TASK_QUEUE_ENABLE": "2"}, "0"),
        ({"ASCEND_LAUNCH_BLOCKING": "0", "TASK_QUEUE_ENABLE": "2"}, "2"),
        ({"ASCEND_LAUNCH_BLOCKING": "yes"}, "ASCEND_LAUNCH_BLOCKING must be 0 or 1, but is 'yes'"),
    ],
)
def test_launch_blocking_switches_the_task_queue_off(run_python, variables, expected) -> None:
    code = """
import torch
try:
    print(torch.npu.get_task_queue_enable())
except ValueError as error:
    print(str(error).splitlines()[0])
"""
    assert run_python(code, **variables) == expected
