// The caching allocator's accounts in PyTorch's types: statistics, snapshot of segments and blocks, history.

#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/device_heaps.h"
#include "runtime/memory_trace.h"

namespace cann::caching_allocator {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

Stat to_stat(const StatValue& value) {
  Stat stat;
  stat.current = value.current;
  stat.peak = value.peak;
  stat.allocated = value.allocated;
  stat.freed = value.freed;
  return stat;
}

StatArray to_stats(const Tally& tally) {
  StatArray stats;
  stats[static_cast<size_t>(StatType::AGGREGATE)] = to_stat(tally.total());
  stats[static_cast<size_t>(StatType::SMALL_POOL)] = to_stat(tally.value(PoolKind::kSmall));
  stats[static_cast<size_t>(StatType::LARGE_POOL)] = to_stat(tally.value(PoolKind::kLarge));
  return stats;
}

SegmentInfo to_segment_info(const SegmentRecord& record, c10::DeviceIndex device) {
  SegmentInfo info;
  info.device = device;
  info.address = reinterpret_cast<size_t>(record.base);
  info.total_size = record.size;
  info.stream = reinterpret_cast<void*>(record.stream);
  info.is_large = record.kind == PoolKind::kLarge;
  for (const SegmentRecord::Block& block : record.blocks) {
    BlockInfo& entry = info.blocks.emplace_back();
    entry.size = block.size;
    entry.requested_size = block.requested;
    entry.allocated = entry.active = block.live;
    if (!block.live) continue;
    entry.context_when_allocated = MemoryTrace::get().context_of(block.ptr);
    info.allocated_size += block.size;
    info.active_size += block.size;
    info.requested_size += block.requested;
  }
  return info;
}

}  // namespace

DeviceStats stats(c10::DeviceIndex device) {
  device = checked_index(device);
  DeviceStats result;
  result.max_split_size = static_cast<int64_t>(allocator_config().max_split_size);
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps == nullptr) return result;  // asking must not initialise the device
  const HeapStats heap = (*heaps)[device].stats();
  result.allocation = result.active = to_stats(heap.allocation);
  result.allocated_bytes = result.active_bytes = to_stats(heap.allocated_bytes);
  result.requested_bytes = to_stats(heap.requested_bytes);
  result.segment = to_stats(heap.segment);
  result.reserved_bytes = to_stats(heap.reserved_bytes);
  result.inactive_split = to_stats(heap.inactive_split);
  result.inactive_split_bytes = to_stats(heap.inactive_split_bytes);
  result.oversize_allocations = to_stat(heap.oversize_allocation.total());
  result.oversize_segments = to_stat(heap.oversize_segment.total());
  result.num_alloc_retries = heap.num_alloc_retries;
  result.num_ooms = heap.num_ooms;
  result.num_oom_rejections = heap.num_oom_rejections;
  result.num_device_alloc = heap.num_device_alloc;
  result.num_device_free = heap.num_device_free;
  return result;
}

void reset_accumulated_stats(c10::DeviceIndex device) {
  device = checked_index(device);
  if (DeviceHeaps* heaps = DeviceHeaps::if_initialized()) (*heaps)[device].reset_accumulated_stats();
}

void reset_peak_stats(c10::DeviceIndex device) {
  device = checked_index(device);
  if (DeviceHeaps* heaps = DeviceHeaps::if_initialized()) (*heaps)[device].reset_peak_stats();
}

std::vector<SegmentInfo> snapshot() {
  std::vector<SegmentInfo> result;
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps == nullptr) return result;
  for (size_t device = 0; device < heaps->size(); ++device) {
    const auto index = static_cast<c10::DeviceIndex>(device);
    for (const SegmentRecord& record : (*heaps)[index].snapshot()) result.push_back(to_segment_info(record, index));
  }
  return result;
}

void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context, size_t max_entries,
                    c10::CachingDeviceAllocator::RecordContext when) {
  MemoryTrace::get().configure(enabled, context, max_entries, when);
}

bool is_history_enabled() { return MemoryTrace::enabled(); }

std::vector<std::vector<c10::CachingDeviceAllocator::TraceEntry>> trace() {
  return MemoryTrace::get().entries(static_cast<size_t>(device_count()));
}

}  // namespace cann::caching_allocator
