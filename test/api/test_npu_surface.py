"""Calls of torch.npu that hardware acts on and a simulated card answers, and names of the package torch_npu."""

import pytest
import torch
import torch_npu


def test_task_queue_and_time_limit(run_python) -> None:
    npu = torch.npu
    assert npu.get_task_queue_enable() == 1
    npu.set_task_queue_enable(2)
    assert npu.utils.get_task_queue_enable() == 2
    npu.utils.set_task_queue_enable(1)
    with pytest.raises(ValueError, match="must be 0, 1 or 2, but got 3"):
        npu.set_task_queue_enable(3)
    npu.set_op_timeout_ms(1000)
    with pytest.raises(ValueError, match="0 or more milliseconds"):
        npu.set_op_timeout_ms(-1)
    assert run_python("import torch; print(torch.npu.get_task_queue_enable())", TASK_QUEUE_ENABLE="0") == "0"


def test_switches_are_remembered() -> None:
    npu = torch.npu
    assert npu.matmul.cube_math_type is npu.CubeMathType.KEEP_DTYPE
    npu.matmul.cube_math_type = npu.CubeMathType.USE_HF32
    assert npu.matmul.cube_math_type == 3
    npu.matmul.cube_math_type = 0
    with pytest.raises(ValueError, match="99 is not a valid CubeMathType"):
        npu.matmul.cube_math_type = 99
    npu.use_compatible_impl(True)
    assert npu.are_compatible_impl_enabled()
    npu.use_compatible_impl(False)
    assert not npu.are_compatible_impl_enabled()
    assert npu.native_device == "npu" and not npu.utils.is_force_overflow_check()


def test_aclnn_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    aclnn = torch.npu.aclnn
    for switches in (torch.npu.matmul, torch.npu.conv):  # as they were, afterwards
        monkeypatch.setattr(switches, "allow_hf32", switches.allow_hf32)
    assert aclnn.version() is None and aclnn.allow_hf32 is False
    with aclnn.flags(allow_hf32=True):
        assert aclnn.allow_hf32 and torch.npu.matmul.allow_hf32
    assert not torch.npu.matmul.allow_hf32
    aclnn.allow_hf32 = True
    assert aclnn.set_flags(False) == (True,) and not aclnn.allow_hf32


def test_deterministic_level() -> None:
    torch.npu.set_deterministic_level(1)
    assert torch.are_deterministic_algorithms_enabled()
    torch.npu.set_deterministic_level(0)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match="0, 1 or 2, but got 7"):
        torch.npu.set_deterministic_level(7)


def test_limits_of_a_stream() -> None:
    npu, stream = torch.npu, torch.npu.Stream()
    of_the_card = npu.get_device_limit(0)
    assert npu.get_stream_limit(stream) == of_the_card
    npu.set_stream_limit(stream, cube_num=2)
    assert npu.get_stream_limit(stream) == {**of_the_card, "cube_core_num": 2}
    npu.set_stream_limit(stream, vector_num=3)
    assert npu.get_stream_limit(stream) == {"cube_core_num": 2, "vector_core_num": 3}
    with pytest.raises(ValueError, match="cube_core_num must be from 1 to"):
        npu.set_stream_limit(stream, cube_num=1000)
    npu.reset_stream_limit(stream)
    assert npu.get_stream_limit(stream) == of_the_card


def test_host_functions() -> None:
    npu, stream, calls = torch.npu, torch.npu.Stream(), []
    with pytest.raises(RuntimeError, match="_subscribe_report"):
        npu._launch_host_func(stream, calls.append, 1)
    npu._subscribe_report(stream)
    npu._launch_host_func(stream, calls.append, 2)
    npu._unsubscribe_report(stream)
    assert calls == [2]


def test_a_healthy_card() -> None:
    from torch_npu.npu import _recovery

    npu, tensor = torch.npu, torch.ones(2, device="npu")
    npu.stop_device(0)
    npu.restart_device(0, rebuild_all_resources=True)
    assert npu.check_uce_in_memory(0) == 0 and npu.stress_detect() == 0 and npu.utils.stress_detect("p2p") == 0
    _recovery.update_npu_tensor_to_safe(tensor)
    _recovery.update_npu_storage_to_safe(tensor.untyped_storage())
    assert _recovery.check_npu_tensor_is_safe(tensor) and _recovery.check_npu_storage_is_safe(tensor.untyped_storage())
    _recovery.set_npu_tensor_unsafe_check_flag(True)
    assert _recovery.get_npu_tensor_unsafe_check_flag()
    _recovery.set_npu_tensor_unsafe_check_flag(False)
    with pytest.raises(AssertionError, match="Invalid device id"):
        npu.stop_device(99)
    with pytest.raises(ValueError, match="knows the tests"):
        npu.stress_detect("everything")
    with pytest.raises(RuntimeError, match="expected a tensor on npu, but got cpu"):
        _recovery.check_npu_tensor_is_safe(torch.ones(1))


def test_erase_stream() -> None:
    tensor, stream = torch.ones(4, device="npu"), torch.npu.Stream()
    tensor.record_stream(stream)
    torch_npu.erase_stream(tensor, stream)
    with pytest.raises(TypeError, match="must be a tensor on npu"):
        torch_npu.erase_stream(torch.ones(4), stream)
    with pytest.raises(TypeError, match="stream must be a Stream"):
        torch_npu.erase_stream(tensor, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_matmul_checksum_finds_a_wrong_product(dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 128).npu().to(dtype), torch.randn(128, 96).npu().to(dtype)
    product = a @ b
    assert not torch_npu.matmul_checksum(a, b, product)
    product[5, 7] += 100
    verdict = torch_npu.matmul_checksum(a, b, product)
    assert verdict and verdict.device.type == "npu" and verdict.dtype == torch.bool
    product[5, 7] = float("nan")
    assert torch_npu.matmul_checksum(a, b, product)


def test_patches_of_torch(run_python) -> None:
    assert torch_npu._apply_all_patches() is None
    code = """
import torch, torch_npu
torch_npu._apply_patches([["profiler.ProfilerActivity.CUDA", torch_npu.profiler.ProfilerActivity.NPU],
                          ["profiler.profile", torch_npu.profiler.profile]])
print(torch.profiler.profile is torch.profiler.profiler.profile is torch_npu.profiler.profile)
"""
    assert run_python(code) == "True"


def test_lists_and_old_modules() -> None:
    import torch_npu.jit.fusion_pass.fast_gelu
    import torch_npu.op_plugin.atb._atb_ops

    assert torch.quint8 in torch_npu.unsupported_dtype and torch.float32 not in torch_npu.unsupported_dtype
    assert torch_npu.op_plugin.atb._atb_ops._register_atb_extensions() is None
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    torch_npu.jit.optimize(scripted)
    torch_npu.jit.fusion_pass.fast_gelu.fast_gelu_pass(scripted)
    with pytest.raises(TypeError, match="expected a torch.jit.ScriptModule, but got Linear"):
        torch_npu.jit.optimize(torch.nn.Linear(2, 2))


def test_mstx_annotate() -> None:
    from torch_npu.npu.mstx import annotate

    @annotate("decorated")
    def double(x):
        return x * 2

    with torch.profiler.profile() as prof, annotate(message="inside"):
        assert double(2) == 4
    assert {"decorated", "inside"} <= {event.name for event in prof.events()}


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    import torch_npu.contrib.function.roll

    assert callable(torch_npu.contrib.function.roll)


_NAMES = {
    "BFloat16": torch.bfloat16, "Bool": torch.bool, "Byte": torch.uint8, "Char": torch.int8, "Double": torch.float64,
    "Float": torch.float32, "Half": torch.float16, "Int": torch.int32, "Long": torch.int64, "Short": torch.int16,
}  # fmt: skip
_STORAGES = [
    torch.npu.BFloat16Storage, torch.npu.BoolStorage, torch.npu.ByteStorage, torch.npu.CharStorage,
    torch.npu.DoubleStorage, torch.npu.FloatStorage, torch.npu.HalfStorage, torch.npu.IntStorage,
    torch.npu.LongStorage, torch.npu.ShortStorage,
]  # fmt: skip
_TENSORS = [
    torch.npu.BFloat16Tensor, torch.npu.BoolTensor, torch.npu.ByteTensor, torch.npu.CharTensor, torch.npu.DoubleTensor,
    torch.npu.FloatTensor, torch.npu.HalfTensor, torch.npu.IntTensor, torch.npu.LongTensor, torch.npu.ShortTensor,
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), list(zip(_TENSORS, _NAMES.values(), strict=True)), ids=_NAMES)
def test_tensors_of_the_old_types(kind, dtype: torch.dtype) -> None:
    made = kind([0, 1, 1])
    assert made.dtype == dtype and made.device.type == "npu" and made.tolist() == [0, 1, 1]
    assert isinstance(made, kind) and not isinstance(made.cpu(), kind) and kind(2, 3).shape == (2, 3)
    assert torch.ones(2).npu().type(kind).dtype == dtype
    assert made.type() == f"torch.npu.{kind.__name__.rpartition('.')[2]}"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(("kind", "dtype"), list(zip(_STORAGES, _NAMES.values(), strict=True)), ids=_NAMES)
def test_storages_of_the_old_types(kind, dtype: torch.dtype) -> None:
    storage = kind(4)
    assert storage.device.type == "npu" and len(storage) == 4 and storage.dtype == dtype == kind.dtype
    assert storage.fill_(1).tolist() == [1] * 4 and storage.cpu().device.type == "cpu"


def test_counting_the_owners_of_a_storage() -> None:
    from torch_npu import _C

    x = torch.ones(2, device="npu")
    storage = x.untyped_storage()
    alone = _C._storage_Use_Count(storage._cdata)
    view = x[:1]
    assert _C._storage_Use_Count(storage._cdata) == alone + 1 and view.numel() == 1


def test_there_are_no_handles_of_task_groups() -> None:
    from torch_npu._C import _NPUTaskGroupHandle

    with pytest.raises(TypeError, match="No constructor"):
        _NPUTaskGroupHandle()


def test_memory_that_nobody_uses_goes_back() -> None:
    block = torch.empty(30 << 20, dtype=torch.uint8, device="npu")
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert torch.npu.max_memory_cached() == torch.npu.max_memory_reserved() >= block.nbytes
    reserved = torch.npu.memory_reserved()
    del block
    torch.npu.empty_virt_addr_cache()
    assert torch.npu.memory_reserved() <= reserved - (30 << 20)
    torch.npu.ipc_collect()  # nothing was received: nothing to forget


def test_sums_of_pinned_memory_start_anew() -> None:
    torch.ones(1 << 16).pin_memory()
    taken = "allocations.allocated"
    assert torch.npu.host_memory_stats()[taken] > 0
    torch.npu.reset_accumulated_host_memory_stats()
    assert torch.npu.host_memory_stats()[taken] == 0


def test_before_initialisation_and_after_a_fork(run_python) -> None:
    code = """
import os, torch
from torch_npu.npu import _initialized, _is_in_bad_fork
from torch_npu.npu.amp.common import amp_definitely_not_available
before = (_initialized, _is_in_bad_fork(), amp_definitely_not_available())
torch.npu.init()
pid = os.fork()
if pid == 0:
    os._exit(torch.npu._is_in_bad_fork() and not torch.npu.is_initialized())
print(before, torch.npu._initialized, torch.npu._is_in_bad_fork(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_python(code) == "(False, False, False) True False 1"


def test_mixed_precision_needs_a_card(run_python) -> None:
    code = """
import os
os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "-1"
import torch
from torch.npu.amp.common import amp_definitely_not_available
print(torch.npu.device_count(), amp_definitely_not_available())
"""
    assert run_python(code) == "0 True"


def test_dtypes_of_scales_and_packed_numbers() -> None:
    assert torch_npu.float8_e8m0fnu is torch.float8_e8m0fnu and torch_npu.float4_e2m1fn_x2 is torch.float4_e2m1fn_x2
    scales = torch.tensor([0.5, 4], device="npu").to(torch_npu.float8_e8m0fnu)
    assert scales.float().tolist() == [0.5, 4]
    assert torch.zeros(2, dtype=torch.uint8, device="npu").view(torch_npu.float4_e2m1fn_x2).is_npu
