#pragma once
// The caching allocator of the cards' HBM: PyTorch's semantics (segments split into blocks, small and large pools,
// rounding to 512 B, statistics, snapshot) over cann::sim::Hbm.
//
// Memory returned here is host memory; an npu storage and the CPU storage behind it both use it (see storage.h).
// Every function is thread-safe. Allocation raises torch.OutOfMemoryError (c10::OutOfMemoryError) with torch_npu's text
// when the card is full, and with a text naming the host when the host cannot back it.

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <string>
#include <vector>

namespace cann::caching_allocator {

// Block of at least `bytes` on `device` for its current stream. `bytes` may be 0: returns nullptr.
void* allocate(c10::DeviceIndex device, size_t bytes);
// Frees what allocate() gave; any card; nullptr is ignored; also called during interpreter shutdown.
void free(void* ptr) noexcept;

// PyTorch-facing allocator: DataPtr tagged npu:<current device>, context == data. Lives for the whole process.
c10::DeviceAllocator* npu_allocator();
// The same memory with DataPtrs tagged CPU, for the CPU storage behind an npu storage of `device`.
// Raises RuntimeError when `device` is out of range.
c10::Allocator* host_view_allocator(c10::DeviceIndex device);
// Makes torch.accelerator's allocator settings reach set_allocator_settings(). Called once, at library load.
void install_settings_hook();

// Size of the block that holds `ptr` and its start; {nullptr, 0} when `ptr` is not in a live block.
std::pair<void*, size_t> block_of(const void* ptr);

c10::CachingDeviceAllocator::DeviceStats stats(c10::DeviceIndex device);
void reset_accumulated_stats(c10::DeviceIndex device);
void reset_peak_stats(c10::DeviceIndex device);
void empty_cache();
// {free, total} bytes of the card as the driver sees it: total is the usable HBM, free excludes cached segments.
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

// Share of the card that this process may use, in [0, 1]; raises ValueError outside. Holds before the first allocation
// too.
void set_memory_fraction(double fraction, c10::DeviceIndex device);
double memory_fraction(c10::DeviceIndex device);

void record_stream(const c10::DataPtr& ptr, c10::Stream stream);

// Applies "key:value,..." options as PYTORCH_NPU_ALLOC_CONF does; options not mentioned keep their values. Raises
// ValueError naming an unknown key or bad value, and then changes nothing. Does not initialise the device.
void set_allocator_settings(const std::string& settings);

// Counts bytes held outside the pool (communicator buffers, contexts) against the card. Raises OutOfMemoryError if
// full.
void add_external(c10::DeviceIndex device, size_t bytes, const char* what);
void remove_external(c10::DeviceIndex device, size_t bytes) noexcept;

// Segments with their blocks, by address.
std::vector<c10::CachingDeviceAllocator::SegmentInfo> snapshot();
// History of allocator actions for torch.npu.memory._snapshot(). `max_entries` newest are kept; stacks come from
// `context` when given.
void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context, size_t max_entries,
                    c10::CachingDeviceAllocator::RecordContext when);
bool is_history_enabled();
std::vector<std::vector<c10::CachingDeviceAllocator::TraceEntry>> trace();  // one list per device

}  // namespace cann::caching_allocator
