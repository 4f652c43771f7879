"""Options, switches, marks, and the older tensor types."""

import warnings

import pytest
import torch

npu = torch.npu


def test_options_are_checked_all_before_any_is_set() -> None:
    with pytest.raises(ValueError, match="invalid npu option name: 'NO_SUCH'"):
        npu.set_option({"jitCompile": "enable", "NO_SUCH": 1})
    with pytest.raises(ValueError, match="invalid value 'fast' of npu option ACL_PRECISION_MODE"):
        npu.set_option({"jitCompile": "enable", "ACL_PRECISION_MODE": "fast"})
    with pytest.raises(TypeError, match="must be a dict"):
        npu.set_option("jitCompile")
    assert npu.is_jit_compile_false()


def test_compile_mode() -> None:
    npu.set_compile_mode(jit_compile=True)
    assert not npu.is_jit_compile_false()
    npu.set_compile_mode()
    assert npu.is_jit_compile_false()
    with pytest.raises(TypeError, match="must be True or False"):
        npu.set_compile_mode(jit_compile="no")


@pytest.mark.parametrize(
    ("switches", "name", "default"),
    [(npu.matmul, "allow_hf32", False), (npu.conv, "allow_hf32", True), (npu.config, "allow_internal_format", True)],
)
def test_switches(switches, name: str, default: bool) -> None:
    assert getattr(switches, name) is default
    setattr(switches, name, not default)
    assert getattr(switches, name) is (not default)
    setattr(switches, name, default)
    with pytest.raises(AttributeError, match="no switch 'allow_magic'"):
        switches.allow_magic = True
    with pytest.raises(TypeError, match="must be True or False"):
        setattr(switches, name, 1)


def test_nd_format() -> None:
    assert npu.get_mm_bmm_format_nd()
    npu.set_mm_bmm_format_nd(False)
    assert not npu.get_mm_bmm_format_nd()
    npu.set_mm_bmm_format_nd()


def test_core_limits(run_python) -> None:
    code = """
import torch, torch_npu
n = torch.npu
cubes = n.get_device_properties(1).cube_core_num
assert n.get_device_limit(1)["cube_core_num"] == cubes
try:
    n.set_device_limit(1, cube_num=cubes + 1)
except ValueError as e:
    assert str(cubes) in str(e)
n.set_device_limit(1, cube_num=2)
assert n.get_device_limit(1)["cube_core_num"] == 2 and n.get_device_limit(0)["cube_core_num"] == cubes
try:
    n.set_device_limit(1, cube_num=3)
except RuntimeError as e:
    print("only once" in str(e))
"""
    assert run_python(code) == "True"


def test_sdp_switches_are_pytorchs() -> None:
    assert npu.flash_sdp_enabled()
    npu.enable_flash_sdp(False)
    try:
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        npu.enable_flash_sdp(True)


def test_deterministic_region() -> None:
    modes = []
    x = torch.ones(2, device="npu", requires_grad=True)
    y = npu.enable_deterministic_with_backward(x)
    y.register_hook(lambda grad: modes.append(torch.are_deterministic_algorithms_enabled()))
    modes.append(torch.are_deterministic_algorithms_enabled())
    z = npu.disable_deterministic_with_backward(y * 2)
    modes.append(torch.are_deterministic_algorithms_enabled())
    z.sum().backward()
    assert modes == [True, False, True] and not torch.are_deterministic_algorithms_enabled()
    assert x.grad.tolist() == [2, 2]


def test_marks_appear_in_a_profile() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        npu.mstx.mark("a mark")
        number = npu.mstx.range_start("a range")
        torch.ones(1, device="npu")
        npu.mstx.range_end(number)
        assert npu.mstx.range_push("outer") == 0 and npu.mstx.range_push("inner") == 1
        assert npu.mstx.range_pop() == 1 and npu.mstx.range_pop() == 0
        assert npu.mstx.mstx_range("a function")(lambda: 5)() == 5
    names = {event.key for event in profile.key_averages()}
    assert {"a mark", "a range", "outer", "inner", "a function"} <= names
    assert number > 0
    with pytest.raises(ValueError, match="is open"):
        npu.mstx.range_end(number)
    with pytest.raises(ValueError, match="without a range_push"):
        npu.mstx.range_pop()
    with pytest.raises(TypeError, match="must be a text"):
        npu.mstx.mark(3)


def test_tensor_types() -> None:
    half = torch.ones(2, device="npu").type(npu.HalfTensor)
    assert half.dtype == torch.float16 and half.is_npu and half.type() == "torch.npu.HalfTensor"
    assert isinstance(half, npu.HalfTensor) and not isinstance(half, npu.FloatTensor)
    assert not isinstance(half.cpu(), npu.HalfTensor)
    assert torch.ones(2).type("torch.npu.IntTensor").device.type == "npu"
    assert npu.FloatTensor(2, 3).shape == (2, 3) and npu.FloatTensor(torch.Size([4])).shape == (4,)
    assert npu.LongTensor([1, 2]).tolist() == [1, 2] and npu.BoolTensor().numel() == 0
    assert npu.HalfTensor(half).data_ptr() == half.data_ptr()
    assert npu.FloatTensor(1).device.type == "npu" and npu.ByteTensor.dtype == torch.uint8
    with pytest.raises(TypeError, match="FloatTensor"):
        npu.FloatTensor(half)


def test_storage_types() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = npu.FloatStorage(4)
        assert storage.device.type == "npu" and storage.dtype == torch.float32 and storage.size() == 4
        assert npu.BFloat16Storage.dtype == torch.bfloat16
        assert torch.ones(3, device="npu").storage().type() == "torch.npu.FloatStorage"
        assert isinstance(torch.ones(3, device="npu").storage(), npu.FloatStorage)
