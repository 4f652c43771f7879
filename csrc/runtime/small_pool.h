#pragma once
// Blocks of up to 1 MiB of one stream on one card: best fit over 2 MiB segments in units of 512 B.
//
// Free blocks hang in 4096 lists, one per size; a two-level bitmap of 64 x 64 bits finds the smallest sufficient size
// with two bit scans. A block's record is element `unit` of its segment's array, so no record is ever allocated and an
// address leads to its record by a shift. The most recently freed block of a size is used first, since it is warm in
// the cache.
//
// A freed block of up to 32 KiB first stays "warm", one per size, not yet merged with its neighbours: the next request
// of that size takes it in a few instructions, where splitting and merging would cost twice as much. It is merged when
// the next block of its size is freed, and all are before the pool reports itself full or is looked at.
//
// Guarded by the lock of the owning DeviceHeap. Torch-free.

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/allocator_config.h"
#include "runtime/allocator_stats.h"

namespace cann {

class DeviceHeap;
class SmallPool;

inline constexpr size_t kSmallUnits = kSmallSegmentSize / kMinBlockSize;

// Lengths and positions are in units. A record whose state is kNone starts no block.
struct SmallBlock {
  enum State : uint8_t { kNone = 0, kFree, kWarm, kLive };

  SmallBlock* bin_previous;  // neighbours in the list of free blocks of equal size
  SmallBlock* bin_next;
  uint32_t requested;     // bytes asked for
  uint16_t unit;          // position in the segment
  uint16_t units;         // length
  uint16_t units_before;  // length of the block before it in the segment, 0 for the first
  State state;
};

struct SmallSegment {
  SmallPool* pool;
  char* base;
  std::array<SmallBlock, kSmallUnits> blocks;

  // The record of the block that starts at `ptr`, nullptr when no live block does.
  SmallBlock* live_block_at(const void* ptr) {
    const auto offset = static_cast<size_t>(static_cast<const char*>(ptr) - base);
    SmallBlock& block = blocks[offset / kMinBlockSize];
    return block.state == SmallBlock::kLive && offset % kMinBlockSize == 0 ? &block : nullptr;
  }
  // The block after `block`, nullptr after the last.
  SmallBlock* after(const SmallBlock& block) {
    const size_t unit = size_t{block.unit} + block.units;
    return unit < kSmallUnits ? &blocks[unit] : nullptr;
  }
  SmallBlock* before(const SmallBlock& block) {
    return block.units_before == 0 ? nullptr : &blocks[size_t{block.unit} - block.units_before];
  }
  char* address_of(const SmallBlock& block) const { return base + size_t{block.unit} * kMinBlockSize; }
};

class SmallPool {
 public:
  // `heap` and `stats` must outlive the pool.
  SmallPool(DeviceHeap& heap, int64_t stream, HeapStats& stats) : heap_(heap), stream_(stream), stats_(stats) {}

  DeviceHeap& heap() const { return heap_; }
  int64_t stream() const { return stream_; }

  // A block of `size` bytes (a multiple of 512, at most 1 MiB), nullptr when no free block is large enough.
  char* take(size_t size, size_t requested);
  // Frees a live block.
  void give(SmallBlock& block);
  // Merges all warm blocks with their free neighbours, so that free blocks and their statistics are as PyTorch has
  // them.
  void merge_warm();

  // Adds 2 MiB of free memory at `base`; the caller keeps both alive until remove(). Throws std::bad_alloc.
  SmallSegment* add_segment(char* base);
  // Takes back a segment that is wholly free.
  void remove_segment(SmallSegment* segment);
  // Drops the records of a segment whose pool is about to go.
  static void destroy(SmallSegment* segment);
  // A wholly free segment, nullptr when there is none. Call merge_warm() first.
  SmallSegment* unused_segment() const;

 private:
  static constexpr size_t kWordBits = 64;
  static constexpr size_t kWarmSizes = 64;

  void link(SmallBlock& block);
  void unlink(SmallBlock& block);
  SmallBlock* best_fit(size_t units) const;
  void split(SmallBlock& block, size_t units);
  void merge(SmallBlock& block);

  DeviceHeap& heap_;
  const int64_t stream_;
  HeapStats& stats_;
  uint64_t words_in_use_ = 0;                       // bit w: bins_in_use_[w] is not zero
  std::array<uint64_t, kWordBits> bins_in_use_{};   // bit b of word w: list 64 w + b is not empty
  std::array<SmallBlock*, kWarmSizes + 1> warm_{};  // entry n: a warm block of n units, or nullptr
  std::array<SmallBlock*, kSmallUnits> bins_{};     // list n holds free blocks of n + 1 units
};

}  // namespace cann
