"""Memory of the cards and pinned memory of the host: the functions and key names of torch.cuda.memory."""

import collections
import os
import pickle
import sys
import warnings
from typing import Any

import torch

from torch_cann import _C
from torch_cann._refused import refused
from torch_cann.npu import _memory_summary
from torch_cann.npu._device import _lazy_init, device as _device_guard, is_initialized
from torch_cann.npu._utils import checked_device_index
from torch_cann.npu.streams import StreamContext
from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = [
    "MemPool",
    "NPUPluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "empty_cache",
    "empty_virt_addr_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_npu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


# --- blocks and limits ------------------------------------------------------------------------------------------------


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Address of a block of ``size`` bytes on ``device`` for ``stream``; give it to caching_allocator_delete()."""
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"expected a number of bytes that is 0 or more, but got {size!r}" + pta_error(ErrCode.VALUE))
    if isinstance(stream, int):
        stream = torch.npu.ExternalStream(stream, device=device)
    _lazy_init()
    with StreamContext(stream), _device_guard(device):
        return _C._npu_npuCachingAllocator_raw_alloc(size)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees a block. Raises ValueError for an address that is not the start of a block in use; 0 is ignored."""
    if mem_ptr:
        _C._npu_npuCachingAllocator_raw_delete(mem_ptr)


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits this process to ``fraction`` of the card's memory, 0 to 1. May be called before the first allocation."""
    if not isinstance(fraction, float):
        raise TypeError(
            f"Invalid type for fraction argument, must be `float`, but got {type(fraction).__name__}"
            + pta_error(ErrCode.TYPE)
        )
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1" + pta_error(ErrCode.VALUE))
    _lazy_init()
    _C._npu_setMemoryFraction(fraction, checked_device_index(device))


def get_per_process_memory_fraction(device: Any = None) -> float:
    _lazy_init()
    return _C._npu_getMemoryFraction(checked_device_index(device))


def empty_cache() -> None:
    """Gives cached segments without a block in use back to the cards."""
    if is_initialized():
        _C._npu_emptyCache()


def empty_virt_addr_cache() -> None:
    """Expandable segments keep no address space of their own here: the same as empty_cache()."""
    empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the card as its driver sees it; cached segments are not free."""
    _lazy_init()
    return _C._npu_memoryInfo(checked_device_index(device))


def list_npu_processes(device: Any = None) -> str:
    """The processes on the card, which is private to this one, and what it holds of it."""
    index = checked_device_index(device)
    free, total = mem_get_info(index)
    return f"NPU:{index}\nprocess {os.getpid():>10d} uses {(total - free) / 2**20:>12.3f} MB NPU memory"


def get_allocator_backend() -> str:
    return _C._npu_getAllocatorBackend()


def _set_allocator_settings(env: str) -> None:
    """Applies options in the form of PYTORCH_NPU_ALLOC_CONF."""
    _C._npu_npuCachingAllocator_set_allocator_settings(env)


# --- statistics -------------------------------------------------------------------------------------------------------


def _flatten(stats: dict[Any, Any], prefix: str = "") -> dict[str, int]:
    """{"a": {"b": 1}} -> {"a.b": 1}; the ids of memory pools, tuples, are joined by "_"."""
    flat = {}
    for key, value in stats.items():
        name = prefix + ("_".join(map(str, key)) if isinstance(key, tuple) else key)
        if isinstance(value, dict):
            flat.update(_flatten(value, name + "."))
        else:
            flat[name] = value
    return flat


def _sorted(stats: dict[Any, Any]) -> "collections.OrderedDict[str, int]":
    return collections.OrderedDict(sorted(_flatten(stats).items()))


def _index_in_use(device: Any) -> int | None:
    """The card that ``device`` names, checked; None while nothing can be in use on it."""
    if device is None and not is_initialized():
        return None
    index = checked_device_index(device)
    return index if is_initialized() else None


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Statistics of the caching allocator, by PyTorch's names; empty until the device is initialised."""
    index = _index_in_use(device)
    return {} if index is None else _C._npu_memoryStats(index)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The same as a flat dictionary: "allocated_bytes.all.current", "num_ooms"..., sorted."""
    return _sorted(memory_stats_as_nested_dict(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Sets the ".allocated" and ".freed" totals and the event counters to 0."""
    index = _index_in_use(device)
    if index is not None:
        _C._npu_resetAccumulatedMemoryStats(index)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets every ".peak" to what is current."""
    index = _index_in_use(device)
    if index is not None:
        _C._npu_resetPeakMemoryStats(index)


def reset_max_memory_allocated(device: Any = None) -> None:
    warnings.warn(
        "torch.npu.reset_max_memory_allocated resets all peaks; call torch.npu.reset_peak_memory_stats instead",
        FutureWarning,
        stacklevel=2,
    )
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    warnings.warn(
        "torch.npu.reset_max_memory_cached resets all peaks; call torch.npu.reset_peak_memory_stats instead",
        FutureWarning,
        stacklevel=2,
    )
    reset_peak_memory_stats(device)


def _bytes(stat: str, device: Any) -> int:
    kind, value = stat.split(".")
    stats = memory_stats_as_nested_dict(device)
    return stats[kind]["all"][value] if stats else 0


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors now."""
    return _bytes("allocated_bytes.current", device)


def max_memory_allocated(device: Any = None) -> int:
    return _bytes("allocated_bytes.peak", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes the caching allocator holds now, in use or not."""
    return _bytes("reserved_bytes.current", device)


def max_memory_reserved(device: Any = None) -> int:
    return _bytes("reserved_bytes.peak", device)


def memory_cached(device: Any = None) -> int:
    warnings.warn("torch.npu.memory_cached is the old name of torch.npu.memory_reserved", FutureWarning, stacklevel=2)
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    warnings.warn(
        "torch.npu.max_memory_cached is the old name of torch.npu.max_memory_reserved", FutureWarning, stacklevel=2
    )
    return max_memory_reserved(device)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table for people."""
    _lazy_init()
    index = checked_device_index(device)
    return _memory_summary.render(_C._npu_memoryStats(index), index, abbreviated)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Statistics of pinned host memory; empty until the device is initialised."""
    return _C._npu_hostMemoryStats() if is_initialized() else {}


def host_memory_stats() -> dict[str, Any]:
    return _sorted(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    _C._npu_resetAccumulatedHostMemoryStats()


def reset_peak_host_memory_stats() -> None:
    _C._npu_resetPeakHostMemoryStats()


def host_empty_cache() -> None:
    """Gives pinned blocks that no tensor uses back to the host."""
    _C._npu_hostEmptyCache()


# --- snapshot and history ---------------------------------------------------------------------------------------------

_skipped_actions: frozenset[str] = frozenset()


def memory_snapshot(mempool_id: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """Segments of all cards with their blocks; of one memory pool if an id is given."""
    segments = _snapshot()["segments"]
    if mempool_id is None:
        return segments
    return [segment for segment in segments if segment["segment_pool_id"] == tuple(mempool_id)]


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Segments, and the history if _record_memory_history() is on, as pytorch.org/memory_viz reads them."""
    if not is_initialized():
        return {"segments": [], "device_traces": [], "allocator_settings": {}, "external_annotations": []}
    snapshot = _C._npu_memorySnapshot()
    if _skipped_actions:
        snapshot["device_traces"] = [
            [entry for entry in trace if entry["action"] not in _skipped_actions] for trace in snapshot["device_traces"]
        ]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Any = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Starts (or with None or False stops) to remember what the allocator does and who asked.

    Args:
        enabled: "state" remembers stacks of live memory, "all" also the last ``max_entries`` actions.
        context: which actions get a stack: None, "state", "alloc" or "all".
        stacks: frames to record: "python", or "all" for those of C++ too (much slower to print).
        clear_history: forget what was recorded before.
        skip_actions: actions to leave out of the snapshot, for example ["free_requested"].
    """
    global _skipped_actions
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    for name, value, allowed in (
        ("enabled", enabled, (None, "state", "all")),
        ("context", context, (None, "state", "alloc", "all")),
        ("stacks", stacks, ("python", "all")),
    ):
        if value not in allowed:
            raise ValueError(
                f"_record_memory_history: {name} must be one of {allowed}, but is {value!r}" + pta_error(ErrCode.VALUE)
            )
    if not isinstance(max_entries, int) or max_entries < 1:
        raise ValueError(
            f"_record_memory_history: max_entries must be a positive number, but is {max_entries!r}"
            + pta_error(ErrCode.VALUE)
        )
    _lazy_init()
    _skipped_actions = frozenset(skip_actions or ())
    when = getattr(_C._RecordContext, "NEVER" if context is None else context.upper())
    if enabled is None or clear_history:
        _C._npu_record_memory_history(False, _C._RecordContext.NEVER, False, 1)
    if enabled is not None:
        _C._npu_record_memory_history(True, when, stacks == "all", max_entries if enabled == "all" else 1)


# --- what the simulated card does not have ----------------------------------------------------------------------------

globals().update(refused(__name__))
