"""acl: CANN's runtime calls, which return codes instead of raising."""

import ctypes

import acl
import pytest
import torch


def test_cards() -> None:
    assert acl.init() == 0 and acl.finalize() == 0 and acl.get_version()[-1] == 0
    assert acl.rt.get_device_count() == (torch.npu.device_count(), 0)
    assert acl.get_soc_name() == torch.npu.get_device_name(0)
    assert acl.rt.set_device(1) == 0 and acl.rt.get_device() == (1, 0)
    assert acl.rt.set_device(99) == 107001 and acl.rt.reset_device(99) == 107001 and acl.rt.reset_device(0) == 0
    assert acl.rt.set_device(0) == 0 and acl.rt.get_run_mode() == (1, 0) and acl.rt.synchronize_device() == 0
    free, total, code = acl.rt.get_mem_info(1)
    assert code == 0 and 0 < free < total


def test_counting_cards_initialises_nothing(run_python) -> None:
    code = "import acl, torch; acl.rt.get_device_count(); acl.get_soc_name(); print(torch.npu.is_initialized())"
    assert run_python(code) == "False"


def test_memory() -> None:
    data = bytes(range(64))
    before = torch.npu.memory_allocated()
    device, code = acl.rt.malloc(64, 0)
    assert code == 0 and torch.npu.memory_allocated() - before == 512
    host, code = acl.rt.malloc_host(64)
    assert code == 0
    assert acl.rt.memcpy(device, 64, acl.util.bytes_to_ptr(data), 64, 1) == 0
    assert acl.rt.memcpy(host, 64, device, 64, 2) == 0
    assert acl.util.ptr_to_bytes(host, 64) == data
    assert acl.rt.memset(device, 64, 7, 32) == 0
    assert acl.rt.memcpy_async(host, 64, device, 64, 2, 0) == 0
    assert acl.util.ptr_to_bytes(host, 64) == b"\7" * 32 + data[32:]
    # too little room, an unknown direction, no address, beyond the end of a block
    for wrong in ((host, 8, host, 9, 2), (host, 64, device, 64, 9), (0, 64, device, 64, 2), (host, 99, device, 99, 2)):
        assert acl.rt.memcpy(*wrong) == 107000
    assert acl.rt.memset(device, 64, 256, 1) == 107000
    assert acl.rt.free(device) == 0 and acl.rt.free(device) == 107000
    assert acl.rt.free_host(host) == 0 and acl.rt.free_host(host) == 107000
    assert acl.rt.malloc(0) == (0, 107000) and acl.rt.malloc_host(-1) == (0, 107000)
    assert acl.rt.malloc(1 << 50) == (0, 207001)
    assert torch.npu.memory_allocated() == before


def test_handles() -> None:
    context, code = acl.rt.create_context(1)
    assert code == 0 and acl.rt.get_device() == (1, 0)
    acl.rt.set_device(0)
    assert acl.rt.set_context(context) == 0 and acl.rt.get_device() == (1, 0)
    assert acl.rt.get_context()[1] == 0
    assert acl.rt.destroy_context(context) == 0 and acl.rt.set_context(context) == 107003
    assert acl.rt.create_context(99) == (0, 107001)
    stream, event = acl.rt.create_stream()[0], acl.rt.create_event()[0]
    assert acl.rt.record_event(event, stream) == 0 and acl.rt.record_event(event, 0) == 0
    assert acl.rt.synchronize_event(event) == 0
    assert acl.rt.synchronize_stream(stream) == 0 and acl.rt.synchronize_stream(0) == 0
    assert acl.rt.destroy_event(stream) == 107003 and acl.rt.destroy_event(event) == 0
    assert acl.rt.destroy_stream(stream) == 0
    for call in (acl.rt.synchronize_stream, acl.rt.synchronize_event):
        assert call(stream) == 107003
    assert acl.rt.record_event(event, stream) == 107003 and acl.rt.memcpy_async(1, 1, 1, 1, 0, stream) == 107003


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="acl.mdl is not provided by torch_cann"):
        acl.mdl
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        acl.nothing


def test_registration_of_host_memory() -> None:
    runtime = torch.npu.npurt()
    assert runtime is torch.npu.npurt()
    mapped, pinned = 0x2, 0x10000000
    block = torch.empty(3 * 4096, dtype=torch.uint8)
    page = -(-block.data_ptr() // 4096) * 4096
    for flags in (mapped, pinned, mapped | pinned):
        assert runtime.npuHostRegister(page, 4096, flags) == 0
        assert runtime.npuHostRegister(page + 100, 50, pinned) == 107000  # inside another
        assert runtime.npuHostUnregister(page) == 0
    assert runtime.npuHostRegister(page + 8, 4096, pinned) == 0 == runtime.npuHostUnregister(page + 8)
    for wrong in ((page + 8, 4096, mapped), (page, 0, pinned), (0, 4096, pinned), (page, 4096, 0), (page, 4096, 0x8)):
        assert runtime.npuHostRegister(*wrong) == 107000
    assert runtime.npuHostUnregister(page) == 107000


def test_streams_by_address() -> None:
    runtime = torch.npu.npurt()
    handle = ctypes.c_void_p()
    assert runtime.npuStreamCreate(ctypes.addressof(handle)) == 0 and handle.value
    assert acl.rt.synchronize_stream(handle.value) == 0
    assert runtime.npuStreamDestroy(handle.value) == 0
    assert runtime.npuStreamDestroy(handle.value) == runtime.npuStreamDestroy(0) == 107003
    assert runtime.npuStreamCreate(0) == 107000
