#pragma once
// Blocks of more than 1 MiB of one stream on one card: best fit, lowest address first among equals.
//
// Guarded by the lock of the owning DeviceHeap. Torch-free.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "runtime/address_map.h"
#include "runtime/allocator_config.h"
#include "runtime/allocator_stats.h"

namespace cann {

class DeviceHeap;
class LargePool;

struct LargeBlock {
  LargePool* pool;
  char* ptr;
  size_t size;
  size_t requested = 0;          // bytes asked for, while live
  LargeBlock* before = nullptr;  // neighbours by address in the segment
  LargeBlock* after = nullptr;
  int64_t freed_at = 0;  // HeapStats::large_frees when it was freed
  bool live = false;
  bool oversize = false;  // at least max_split_size when handed out

  // Whether it is its whole segment.
  bool whole() const { return before == nullptr && after == nullptr; }
};

class LargePool {
 public:
  // All must outlive the pool. `config` may change between calls.
  LargePool(DeviceHeap& heap, int64_t stream, HeapStats& stats, AddressMap& addresses, const AllocatorConfig& config)
      : heap_(heap), stream_(stream), stats_(stats), addresses_(addresses), config_(config) {}

  DeviceHeap& heap() const { return heap_; }
  int64_t stream() const { return stream_; }

  // A block of `size` bytes (a multiple of 512, more than 1 MiB), nullptr when no free block fits.
  LargeBlock* take(size_t size, size_t requested);
  // Frees a live block and merges it with free neighbours; returns the result.
  LargeBlock* give(LargeBlock& block);

  // Adds `bytes` of free memory at `base`; the caller keeps it alive until remove_segment().
  LargeBlock* add_segment(char* base, size_t bytes);
  // Takes back a segment that is wholly free: `block` is all of it.
  void remove_segment(LargeBlock* block);

  // Of the wholly free segments of at least `bytes`, the smallest; nullptr when there is none.
  LargeBlock* unused_segment(size_t bytes = 0) const;
  // Of the wholly free segments, the one that was freed first; nullptr when there is none.
  LargeBlock* oldest_unused_segment() const;
  // Of the wholly free segments of at least max_split_size, the largest; nullptr when there is none.
  LargeBlock* largest_oversize_segment() const;

 private:
  void link(LargeBlock* block) { free_.emplace(std::pair(block->size, block->ptr), block); }
  void unlink(LargeBlock* block) { free_.erase(std::pair(block->size, block->ptr)); }
  bool may_split(size_t block_size, size_t size) const;
  void absorb_next(LargeBlock* block);

  DeviceHeap& heap_;
  const int64_t stream_;
  HeapStats& stats_;
  AddressMap& addresses_;
  const AllocatorConfig& config_;
  std::map<std::pair<size_t, char*>, LargeBlock*> free_;
};

}  // namespace cann
