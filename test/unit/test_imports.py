"""Names under which the package is found, and what importing it does and does not do."""

import importlib.util
import os
import sys
from pathlib import Path

import cann
import pytest
import torch
import torch_cann
import torch_npu


def test_torch_npu_is_the_same_objects() -> None:
    import torch.npu.utils
    import torch_npu._C
    import torch_npu.npu.amp.grad_scaler
    import torch_npu.utils.collect_env
    from torch_npu.npu import amp
    from torch_npu.npu.mstx import mstx

    assert torch_npu.npu is torch.npu is torch_cann.npu
    assert sys.modules["torch.npu.utils"] is torch_cann.npu.utils
    assert amp is torch.npu.amp and amp.GradScaler is torch_npu.npu.amp.grad_scaler.GradScaler
    assert torch.npu.mstx is mstx
    assert torch_npu._C is torch_cann._C
    assert torch_npu.utils.collect_env.get_cann_version() == cann.__version__ == torch.version.cann
    assert torch_cann.npu.utils.__spec__.name == "torch_cann.npu.utils"


def test_a_module_first_imported_under_its_other_name(run_python) -> None:
    code = """
import torch_npu.contrib, torch_npu.utils._error_code
import torch_cann.contrib, torch_cann.utils._error_code as real
import importlib
print(torch_npu.contrib is torch_cann.contrib, torch_npu.utils._error_code is real, importlib.reload(real) is real)
"""
    assert run_python(code) == "True True True"


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'torch_npu.no_such_module'"):
        importlib.import_module("torch_npu.no_such_module")
    with pytest.raises(AttributeError, match="'torch_npu' has no attribute 'npu_no_such_operator'"):
        torch_npu.npu_no_such_operator
    with pytest.raises(AttributeError, match="'torch.npu' has no attribute 'no_such_name'"):
        torch.npu.no_such_name
    assert importlib.util.find_spec("torch_npu.no_such_module") is None


def test_versions() -> None:
    assert torch_npu.__version__ == "2.13.0" and Path(torch_npu.__file__).name == "__init__.py"
    home = Path(torch_cann.__file__).parent / "_home"
    lines = (home / "ascend_toolkit_install.info").read_text().splitlines()
    assert f"version={cann.__version__}" in lines
    gte = torch.npu.utils._is_gte_cann_version
    assert gte("8.1.RC1") and gte(cann.__version__) and not gte("99.0")
    with pytest.raises(ValueError, match="like 8.1.0"):
        gte("new")


def test_environment_report(run_python) -> None:
    code = """
import subprocess, sys
print(subprocess.run([sys.executable, "-m", "torch_npu.utils.collect_env"], capture_output=True, text=True).stdout)
"""
    assert run_python(code, TORCH_CANN_SOC="Ascend910B3", TORCH_CANN_DEVICE_COUNT="3").endswith(
        "npu:2: 62420 MB, 20 cube and 40 vector cores"
    )


def test_the_environment_is_filled_in_but_never_changed(run_python) -> None:
    code = """
import os, torch_npu
print(os.path.isdir(os.environ["ASCEND_HOME_PATH"]), os.environ["ASCEND_TOOLKIT_HOME"])
"""
    assert run_python(code, ASCEND_HOME_PATH=None, ASCEND_TOOLKIT_HOME="/mine") == "True /mine"
    assert os.environ["ASCEND_HOME_PATH"]


def test_importing_loads_nothing_heavy(run_python) -> None:
    code = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import sys, torch
before = set(sys.modules)
import torch_npu
new = {name.split(".")[0] + "." + name.split(".")[1] for name in set(sys.modules) - before if name.count(".")}
print(sorted(new & {"torch._dynamo", "torch._inductor", "torch.onnx", "torch.fx"}))
"""
    assert run_python(code) == "[]"


def test_importing_replaces_no_function_of_torch(run_python) -> None:
    code = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
owners = (torch, torch.Tensor, torch.nn.Module, torch.nn.functional, torch.serialization, torch.utils.data, torch.optim)
before = [dict(vars(owner)) for owner in owners]
import torch_npu
changed = [f"{owner.__name__}.{name}" for owner, old in zip(owners, before) for name in old
           if vars(owner).get(name) is not old[name]]
print(changed)
"""
    assert run_python(code) == "[]"


@pytest.mark.parametrize("first", ["torch", "torch_cann", "torch_npu", "cann, torch_npu"])
def test_any_order_of_imports(run_python, first: str) -> None:
    code = f"import {first}, torch_npu, torch_cann, torch; torch_cann._autoload(); print(torch.ones(1).npu().device)"
    assert run_python(code) == "npu:0"


def test_a_real_torch_npu_is_refused(run_python, tmp_path) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("__version__ = '2.13.0'\n")
    code = f"""
import os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.path.insert(0, {str(tmp_path)!r})
try:
    import torch_cann
except ImportError as e:
    print("the real torch_npu is installed" in str(e) and "uninstall" in str(e))
"""
    assert run_python(code) == "True"


def test_another_release_of_torch_is_refused(monkeypatch) -> None:
    from torch_cann import _preflight

    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    with pytest.raises(ImportError, match=r"works with PyTorch 2\.13\.x, but PyTorch 2\.12\.1\+cpu is installed"):
        _preflight.check()
    with pytest.raises(ImportError, match=r"compiled for PyTorch 2\.13\.0, but PyTorch 2\.12\.1 is running"):
        _preflight.check_extension("2.13.0")


def test_device_is_what_generic_code_finds() -> None:
    assert torch.accelerator.current_accelerator().type == "npu"
    assert torch.get_device_module("npu") is torch.npu
    assert torch._utils._get_available_device_type() == "npu"
    assert importlib.util.find_spec("torch_npu") is not None


def test_calls_wait_until_their_module_is_loaded(run_python) -> None:
    code = """
import sys
from torch_cann._import_hooks import when_imported

made = []
def call():
    made.append("colorsys" in sys.modules)
    if len(made) == 1:
        raise OSError("not yet")

when_imported("colorsys", call)
assert not made
try:
    import colorsys
except OSError:
    print("raised", "colorsys" in sys.modules)
import colorsys
when_imported("colorsys", call)
print(made, colorsys.__loader__ is colorsys.__spec__.loader, type(colorsys.__loader__).__name__)
"""
    assert run_python(code) == "[True, True, True] True SourceFileLoader"
