"""torch.npu.memory: accounting, limits, snapshot and history, pinned memory."""

import gc
import pickle
import re

import pytest
import torch

npu = torch.npu
MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    npu.empty_cache()
    npu.reset_peak_memory_stats()


def test_allocated_grows_by_the_request_rounded_to_512_bytes() -> None:
    before = npu.memory_allocated()
    small = torch.empty(1, dtype=torch.uint8, device="npu")
    assert npu.memory_allocated() - before == 512
    large = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    assert npu.memory_allocated() - before == 512 + 64 * MIB
    del small, large
    assert npu.memory_allocated() == before


def test_reserved_follows_the_segment_rules() -> None:
    # On a card of its own: elsewhere a segment of an earlier test may have room.
    card = 6
    npu.empty_cache()
    before = npu.memory_reserved(card)
    npu.reset_peak_memory_stats(card)
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=f"npu:{card}")
    assert npu.memory_reserved(card) - before == 20 * MIB
    del tensor
    assert npu.memory_reserved(card) - before == 20 * MIB
    again = torch.empty(3 * MIB, dtype=torch.uint8, device=f"npu:{card}")
    assert npu.memory_reserved(card) == npu.max_memory_reserved(card) == before + 20 * MIB
    del again
    npu.empty_cache()
    assert npu.memory_reserved(card) == before


def test_peaks() -> None:
    before = npu.memory_allocated()
    tensor = torch.empty(8 * MIB, dtype=torch.uint8, device="npu")
    del tensor
    assert npu.max_memory_allocated() - before == 8 * MIB
    npu.reset_peak_memory_stats()
    assert npu.max_memory_allocated() == npu.memory_allocated()
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        npu.reset_max_memory_allocated()
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert npu.memory_cached() == npu.memory_reserved()


def test_stats_flat_nested_and_accelerator_agree() -> None:
    tensor = torch.empty(MIB, device="npu")
    flat, nested = npu.memory_stats(), npu.memory_stats_as_nested_dict()
    assert flat["allocated_bytes.all.current"] == nested["allocated_bytes"]["all"]["current"] == npu.memory_allocated()
    assert flat["reserved_bytes.large_pool.peak"] == nested["reserved_bytes"]["large_pool"]["peak"]
    assert list(flat) == sorted(flat)
    assert set(torch.accelerator.memory_stats()) <= set(flat)
    assert torch.accelerator.memory_stats()["active_bytes.all.current"] == flat["active_bytes.all.current"]
    assert flat["allocated_bytes.all.allocated"] >= 4 * MIB
    del tensor
    npu.reset_accumulated_memory_stats()
    assert npu.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_cards_are_counted_apart() -> None:
    before = npu.memory_allocated(0), npu.memory_allocated(1)
    tensor = torch.empty(MIB, dtype=torch.uint8, device="npu:1")
    assert npu.memory_allocated("npu:1") - before[1] == MIB
    assert npu.memory_allocated(torch.device("npu:0")) == before[0]
    del tensor


def test_mem_get_info() -> None:
    free, total = npu.mem_get_info()
    assert 0 < free < total
    assert torch.accelerator.get_memory_info() == (free, total) == npu.mem_get_info("npu:0")
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    assert free - npu.mem_get_info()[0] == 64 * MIB
    del tensor


def test_out_of_memory_and_the_limit() -> None:
    total = npu.mem_get_info()[1]
    ooms = npu.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError, match=r"NPU out of memory\. Tried to allocate") as caught:
        torch.empty(2 * total, dtype=torch.uint8, device="npu")
    assert len(caught.value.args) == 1 and isinstance(caught.value, npu.OutOfMemoryError)
    assert npu.memory_stats()["num_ooms"] == ooms + 1
    npu.set_per_process_memory_fraction(0.01)
    try:
        assert npu.get_per_process_memory_fraction() == 0.01
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 50, dtype=torch.uint8, device="npu")
    finally:
        npu.set_per_process_memory_fraction(1.0)
    assert torch.empty(total // 50, dtype=torch.uint8, device="npu").numel() == total // 50


def test_bad_limits() -> None:
    with pytest.raises(ValueError, match=re.escape("1.5. Allowed range: 0~1")):
        npu.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="must be `float`, but got int"):
        npu.set_per_process_memory_fraction(1)


def test_the_limit_holds_before_the_first_allocation(run_python) -> None:
    code = """
import torch, torch_npu
torch.npu.set_per_process_memory_fraction(0.01)
try:
    torch.empty(torch.npu.mem_get_info()[1] // 50, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    print("refused")
"""
    assert run_python(code) == "refused"


def test_raw_blocks() -> None:
    before = npu.memory_allocated(), npu.memory_allocated(1)
    address = npu.caching_allocator_alloc(1000, device=1, stream=npu.Stream(1))
    assert npu.memory_allocated(1) - before[1] == 1024 and npu.memory_allocated() == before[0]
    with pytest.raises(ValueError, match="not the start of a block"):
        npu.caching_allocator_delete(address + 8)
    npu.caching_allocator_delete(address)
    assert npu.memory_allocated(1) == before[1]
    with pytest.raises(ValueError, match="not the start of a block"):
        npu.caching_allocator_delete(address)
    with pytest.raises(ValueError, match="got -1"):
        npu.caching_allocator_alloc(-1)
    assert npu.caching_allocator_alloc(0) == 0
    npu.caching_allocator_delete(0)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="no_such_option"):
        npu.memory._set_allocator_settings("no_such_option:1")
    assert npu.get_allocator_backend() == "native"
    npu.memory._set_allocator_settings("backend:native")
    with pytest.raises(ValueError, match="backend:cudaMallocAsync.*native"):
        npu.memory._set_allocator_settings("backend:cudaMallocAsync")


def test_summary_shows_the_figures() -> None:
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    full, short = npu.memory_summary(), npu.memory_summary(abbreviated=True)
    row = next(line for line in full.splitlines() if "Allocated memory" in line)
    value, unit = row.split("|")[2].split()
    assert float(value) * {"KiB": 1024, "MiB": MIB}[unit] == pytest.approx(npu.memory_allocated(), rel=0.01)
    assert len({len(line) for line in full.splitlines()}) == 1
    assert "small pool" in full and "small pool" not in short
    del tensor


def test_snapshot_lists_segments_and_blocks() -> None:
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    segments = npu.memory_snapshot()
    assert sum(s["total_size"] for s in segments if s["device"] == 0) == npu.memory_reserved()
    assert sum(s["allocated_size"] for s in segments if s["device"] == 0) == npu.memory_allocated()
    mine = [b for s in segments for b in s["blocks"] if b["address"] == tensor.data_ptr()]
    assert [(b["size"], b["state"]) for b in mine] == [(64 * MIB, "active_allocated")]
    for segment in segments:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
    del tensor


def test_history_names_who_allocated(tmp_path) -> None:
    npu.memory._record_memory_history(max_entries=1000, stacks="python")
    try:
        tensor = torch.empty(33 * MIB, dtype=torch.uint8, device="npu")
        address = tensor.data_ptr()
        del tensor
        npu.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
        with open(tmp_path / "snapshot.pickle", "rb") as file:
            snapshot = pickle.load(file)
    finally:
        npu.memory._record_memory_history(None)
    mine = [entry for entry in snapshot["device_traces"][0] if entry.get("addr") == address]
    actions = [entry["action"] for entry in mine]
    assert actions.index("alloc") < actions.index("free_requested") <= actions.index("free_completed")
    frames = next(entry for entry in mine if entry["action"] == "alloc")["frames"]
    assert any(frame["name"] == "test_history_names_who_allocated" for frame in frames)
    assert not torch.npu._C._npu_isHistoryEnabled()


def test_history_can_skip_actions() -> None:
    npu.memory._record_memory_history(context=None, skip_actions=["free_requested"], clear_history=True)
    try:
        torch.empty(MIB, device="npu")
        actions = {entry["action"] for entry in npu.memory._snapshot()["device_traces"][0]}
    finally:
        npu.memory._record_memory_history(False)
    assert {"alloc", "free_completed"} <= actions and "free_requested" not in actions


@pytest.mark.parametrize(
    ("name", "value"), [("enabled", "some"), ("context", "most"), ("stacks", "c"), ("max_entries", 0)]
)
def test_history_checks_its_arguments(name: str, value) -> None:
    with pytest.raises(ValueError, match=f"_record_memory_history: {name} must be"):
        npu.memory._record_memory_history(**{name: value})


def test_pinned_memory_is_counted_and_reused() -> None:
    npu.host_empty_cache()
    npu.reset_peak_host_memory_stats()
    before = npu.host_memory_stats()
    pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    stats = npu.host_memory_stats()
    assert stats["active_bytes.current"] - before["active_bytes.current"] >= MIB
    assert stats["allocated_bytes.current"] > before["allocated_bytes.current"]
    address = pinned.data_ptr()
    del pinned
    assert torch.empty(MIB, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    torch.accelerator.empty_host_cache()
    assert npu.host_memory_stats()["allocated_bytes.current"] == before["allocated_bytes.current"]
    assert npu.host_memory_stats_as_nested_dict()["active_bytes"]["peak"] >= MIB


def test_pin_memory_keeps_values_and_the_original() -> None:
    plain = torch.arange(1000)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned() and torch.equal(pinned, plain)
    assert pinned.to("npu", non_blocking=True).sum().item() == 499500


def test_process_list_shows_what_is_used() -> None:
    free, total = npu.mem_get_info()
    assert f"{(total - free) / 2**20:.3f} MB" in npu.memory.list_npu_processes(0)


def test_set_out_of_memory_leaves_the_tensor_as_it_was() -> None:
    t = torch.ones(4, device="npu")
    with pytest.raises(torch.OutOfMemoryError):
        t.set_(t.untyped_storage(), 0, (1 << 45,), (1,))
    assert t.tolist() == [1] * 4 and t.untyped_storage().nbytes() == 16
