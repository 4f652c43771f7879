"""Cards: count, choice, properties, initialisation, and what a process may do after fork."""

import threading

import pytest
import torch

npu = torch.npu


def test_set_device_and_current_device() -> None:
    npu.set_device(1)
    assert npu.current_device() == 1
    assert torch.ones(1, device="npu").device == torch.device("npu:1")
    npu.set_device("npu:0")
    assert npu.current_device() == torch.accelerator.current_device_index() == 0
    npu.set_device(torch.device("npu:1"))
    assert npu.current_device() == 1
    npu.set_device(-1)
    assert npu.current_device() == 1


def test_current_device_is_per_thread() -> None:
    npu.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(npu.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert npu.current_device() == 1


def test_device_context_restores_even_after_an_error() -> None:
    with pytest.raises(KeyError), npu.device(1):
        assert npu.current_device() == 1
        raise KeyError
    assert npu.current_device() == 0
    with npu.device(None):
        assert npu.current_device() == 0


def test_device_of() -> None:
    with npu.device_of(torch.ones(1, device="npu:1")):
        assert npu.current_device() == 1
    with npu.device_of(torch.ones(1)):
        assert npu.current_device() == 0


@pytest.mark.parametrize("bad", [64, "npu:64", torch.device("npu:64")])
def test_index_out_of_range(bad) -> None:
    with pytest.raises(RuntimeError, match="Invalid NPU device ID: got 64"):
        npu.set_device(bad)
    with pytest.raises(RuntimeError, match="Invalid NPU device ID"):
        npu.synchronize(bad)
    with pytest.raises(AssertionError, match="Invalid device id"):
        npu.get_device_properties(bad)
    with pytest.raises(AssertionError, match="Invalid device id"):
        npu.can_device_access_peer(0, bad)
    with pytest.raises(RuntimeError, match="Invalid NPU device ID"), npu.device(bad):
        pass
    assert npu.current_device() == 0


@pytest.mark.parametrize("function", [npu.set_device, npu.synchronize, npu.get_device_name, npu.memory_allocated])
def test_wrong_kind_of_device(function) -> None:
    with pytest.raises(ValueError, match="Expected a npu device, but got: cpu"):
        function("cpu")
    with pytest.raises(TypeError, match="expected an npu device or its index, but got 1.5"):
        function(1.5)


def test_get_device_index() -> None:
    index = npu._utils._get_device_index
    assert [index(d, optional=True) for d in (3, "npu:2", torch.device("npu:1"), "npu", None)] == [3, 2, 1, 0, 0]
    assert index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="specified index"):
        index("npu")
    assert npu._get_device_index is index


def test_properties() -> None:
    properties = npu.get_device_properties(0)
    assert properties.name == npu.get_device_name() == npu.get_device_name("npu:1")
    assert properties.name.startswith("Ascend")
    assert properties.total_memory == npu.mem_get_info(0)[1]
    assert properties.cube_core_num > 0 and properties.vector_core_num > 0 and properties.L2_cache_size > 0
    assert properties.uuid != npu.get_device_properties(1).uuid
    assert repr(properties).startswith(f"_NPUDeviceProperties(name='{properties.name}', total_memory=")
    assert properties.soc_version == npu.get_soc_version() == npu.utils.get_soc_version()


def test_peers() -> None:
    assert npu.can_device_access_peer(0, 1)
    assert not npu.can_device_access_peer(1, 1)


def test_tensor_module_and_storage_methods() -> None:
    t = torch.arange(4.0).npu(1)
    assert t.is_npu and t.device.index == 1 and not t.cpu().is_npu
    assert torch.nn.Linear(2, 2).npu().weight.is_npu
    storage = torch.arange(4.0).untyped_storage().npu()
    assert storage.is_npu and storage.device == torch.device("npu:0")
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1)]).npu()
    assert packed.is_npu


def test_capability_comes_from_the_environment(run_python) -> None:
    code = "import torch_npu, torch; print(torch.npu.get_device_capability())"
    assert run_python(code, TORCH_NPU_DEVICE_CAPABILITY="9.0") == "(9, 0)"
    assert run_python(code, TORCH_NPU_DEVICE_CAPABILITY=None) == "None"


@pytest.mark.parametrize(("soc", "supported"), [("Ascend910A", "False"), ("Ascend910B1", "True")])
def test_bf16_depends_on_the_chip(run_python, soc: str, supported: str) -> None:
    code = "import torch_npu, torch; print(torch.npu.is_bf16_supported(), torch.npu.get_device_name())"
    assert run_python(code, TORCH_CANN_SOC=soc) == f"{supported} {soc}"


def test_importing_and_counting_initialise_nothing(run_python) -> None:
    code = """
import os, torch, torch_npu
n = torch.npu
assert n.device_count() == 3 and n.is_available() and not n.is_initialized() and not n._initialized
n.manual_seed_all(1); torch.manual_seed(2); n.get_rng_state()
assert n.memory_allocated() == 0 and n.memory_stats() == {} and not n.is_initialized()
os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1"
assert n.device_count() == 1
torch.ones(1, device="npu")
assert n.is_initialized() and n._initialized
os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0,1,2"
print(n.device_count())
"""
    assert run_python(code, ASCEND_RT_VISIBLE_DEVICES="4,2,6") == "1"


def test_without_a_card(run_python) -> None:
    code = """
import torch, torch_npu
n = torch.npu
assert n.device_count() == 0 and not n.is_available() and n.default_generators == () and not n.is_initialized()
torch.manual_seed(0); n.manual_seed(0); n.seed_all(); n.empty_cache()
assert n.get_rng_state_all() == [] and n.memory_allocated() == 0
for call in (n.init, n.current_device, n.synchronize, n.current_stream, n.mem_get_info):
    try:
        call()
    except RuntimeError as e:
        assert "No NPU is visible" in str(e) and "ASCEND_RT_VISIBLE_DEVICES" in str(e), e
    else:
        raise SystemExit(f"{call} worked without a card")
try:
    torch.ones(1, device="npu")
except RuntimeError as e:
    print("NPU" in str(e))
"""
    assert run_python(code, ASCEND_RT_VISIBLE_DEVICES="") == "True"


def test_a_child_of_a_fork_after_initialisation_is_refused(run_python) -> None:
    code = """
import os, torch, torch_npu
torch.ones(1, device="npu")
if os.fork() == 0:
    status = 1
    try:
        assert torch.ones(3).sum() == 3 and torch.npu.device_count() > 0
        assert torch.npu._is_in_bad_fork() and not torch.npu.is_initialized()
        torch.manual_seed(0)
        n = torch.npu
        for call in (lambda: torch.ones(1, device="npu"), n.init, n.current_device, n.synchronize):
            try:
                call()
            except RuntimeError as e:
                assert "forked subprocess" in str(e) and "spawn" in str(e), e
            else:
                raise SystemExit("the child could use the device")
        status = 0
    finally:
        os._exit(status)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_python(code) == "0"


def test_a_child_of_a_fork_before_initialisation_works(run_python) -> None:
    code = """
import os, torch, torch_npu
torch.manual_seed(0); torch.npu.device_count()
if os.fork() == 0:
    os._exit(int(torch.full((2,), 3.0, device="npu").sum()))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_python(code) == "6"


def test_sync_debug_mode() -> None:
    for mode, number in (("warn", 1), (2, 2), ("default", 0)):
        npu.set_sync_debug_mode(mode)
        assert npu.get_sync_debug_mode() == number
    with pytest.raises(RuntimeError, match="invalid value of debug_mode: 'loud'"):
        npu.set_sync_debug_mode("loud")


def test_lazy_call_runs_at_once() -> None:
    calls = []
    npu._lazy_call(lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.parametrize(
    "call",
    [
        npu.utilization,
        npu.MemPool,
        lambda: npu.memory.NPUPluggableAllocator("a.so", "alloc", "free"),
        npu.init_dump,
        npu.utils.get_npu_overflow_flag,
        lambda: npu.Event(interprocess=True),
    ],
)
def test_what_is_not_provided_says_so(call) -> None:
    with pytest.raises(NotImplementedError, match="is not provided by torch_cann"):
        call()
    assert not npu.is_current_stream_capturing()
