"""Errors: type, what was asked, what is, and the code behind the text."""

import re
import subprocess
import sys

import pytest
import torch
import torch_npu
from torch_npu.utils._error_code import ErrCode, dist_error, ops_error, pta_error

import torch_cann

SUFFIX = r"\n\[ERROR\] [0-9\-\:]* \(PID:\d*, Device:\-?\d*, RankID:\-?\d*\) ERR\d{5} "


def test_suffix() -> None:
    assert re.fullmatch(SUFFIX + "PTA invalid parameter", pta_error(ErrCode.PARAM))
    assert "ERR01007 OPS feature not supported" in ops_error(ErrCode.NOT_SUPPORT)
    assert "ERR02011 DIST timeout error" in dist_error(ErrCode.TIMEOUT)
    assert (ErrCode.MEMORY.code, ErrCode.MEMORY.msg) == (6, "memory error")


def test_suffix_can_be_dropped(run_python) -> None:
    code = "import torch_npu; from torch_npu.utils._error_code import *; print(repr(pta_error(ErrCode.PARAM)))"
    assert run_python(code, TORCH_NPU_COMPACT_ERROR_OUTPUT="1") == "''"


def test_suffix_names_the_rank(run_python) -> None:
    code = "import torch_npu; from torch_npu.utils._error_code import *; print(pta_error(ErrCode.PARAM))"
    assert "RankID:3)" in run_python(code, RANK="3")


def test_mixed_devices() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device="npu") + torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*npu:0.*npu:1"):
        torch.ones(2, device="npu:0") + torch.ones(2, device="npu:1")
    assert (torch.ones(2, device="npu") + torch.tensor(1.0)).tolist() == [2, 2]


def test_messages_end_with_the_code() -> None:
    with pytest.raises(RuntimeError, match=SUFFIX):
        torch.npu.set_device(99)
    with pytest.raises(NotImplementedError, match=SUFFIX):
        torch.npu.MemPool()


def test_an_error_in_backward_reaches_the_caller() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("from backward")

    x = torch.ones(2, device="npu", requires_grad=True)
    with pytest.raises(KeyError, match="from backward"):
        Fails.apply(x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_wrong_chip_is_named(run_python) -> None:
    code = """
import torch, torch_npu
try:
    torch.npu.init()
except RuntimeError as e:
    print("Ascend999" in str(e))
"""
    assert run_python(code, TORCH_CANN_SOC="Ascend999") == "True"


def test_tensors_may_outlive_the_interpreter(run_python) -> None:
    code = """
import torch, torch_npu
class Keeper:
    def __init__(self): self.x = torch.ones(1000, device="npu")
    def __del__(self): del self.x
torch.keeper = Keeper()
cycle = [torch.ones(10, device="npu:1")]; cycle.append(cycle)
print("done")
"""
    assert run_python(code) == "done"


def test_ctrl_c_leaves_the_device_usable(run_python) -> None:
    code = """
import os, signal, threading, torch, torch_npu
x = torch.ones(512, 512, device="npu")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        x = x @ x * 0
except KeyboardInterrupt:
    print((torch.ones(2, device="npu") + 1).tolist())
"""
    assert run_python(code) == "[2.0, 2.0]"


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("torch.ones(1, device='npu'); 1 / 0", True),
        ("torch.ones(1, device='npu'); torch.npu.set_device(99)", False),  # has its own code
        ("torch.ones(1, device='npu'); raise SystemExit(3)", False),
        ("1 / 0", False),  # the device was not used
    ],
)
def test_a_script_that_ends_with_an_error_says_so_as_torch_npu_does(statement: str, line: bool) -> None:
    code = f"import torch, torch_npu; {statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    found = re.search(SUFFIX.replace(r"\n", "", 1) + "UNKNOWN applicaiton exception\n$", done.stderr)
    assert bool(found) == line and ("ERR99999" in done.stderr) == line


@pytest.mark.parametrize(
    "refused",
    [
        lambda: torch.npu.set_task_queue_enable(7),
        lambda: torch.npu.device("cuda:0"),
        lambda: torch.npu.set_per_process_memory_fraction(2.0),
        lambda: torch.npu.caching_allocator_alloc(-1),
        lambda: torch.npu.use_compatible_impl("yes"),
        lambda: torch.npu.mstx.mark(""),
        lambda: torch.npu.set_option({"NO_SUCH_OPTION": "1"}),
        lambda: torch.npu.current_stream(99),
    ],
)
def test_what_the_python_package_refuses_has_a_code(refused) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=SUFFIX):
        refused()


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (lambda: torch.npu.caching_allocator_delete(torch.ones(9, device="npu")[4:].data_ptr()), "ERR00004"),
        (lambda: torch.ones(1, device="npu").record_stream(torch.Stream("cpu")), "ERR00001"),
        (lambda: torch_cann._C._npu_setMemoryFraction(1.5, 0), "ERR00003"),
        (lambda: torch_cann._C._npu_npuCachingAllocator_set_allocator_settings("no_such_option:1"), "ERR00001"),
        (lambda: torch_cann._C._weak_ref_tensor(torch.ones(1)), "ERR00002"),
        (lambda: torch_npu.distributed.reinit_process_group(), "ERR02005"),
    ],
)
def test_what_the_extension_and_the_collectives_refuse_has_torch_npus_code(refused, code: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=SUFFIX.replace(r"ERR\d{5} ", code)):
        refused()
