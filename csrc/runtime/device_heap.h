#pragma once
// All allocator state of one card: its pools per stream, its segments, its statistics. The caching allocator's policy
// (which pool, when to reserve, when to empty the cache) is here; the two pools keep the blocks.
//
// A block belongs to the stream it was allocated on and is reused by that stream only, as in PyTorch. Thread-safe: one
// lock per heap, held for tens of nanoseconds on the cached path. Torch-free: failures come back as values, and
// caching_allocator.cpp turns them into exceptions. Heaps live for the whole process.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/address_map.h"
#include "runtime/allocator_config.h"
#include "runtime/allocator_stats.h"
#include "runtime/host_budget.h"
#include "runtime/large_pool.h"
#include "runtime/small_pool.h"
#include "runtime/spin_lock.h"
#include "sim/hbm.h"

namespace cann {

// Why a request was refused, with the figures its error message needs, taken at that moment. All in bytes.
struct OutOfMemory {
  enum Reason { kNone, kCardFull, kBeyondFraction, kHostFull };
  Reason reason = kNone;
  size_t asked = 0;  // the segment that could not be had
  size_t total = 0, free = 0, allowed = 0;
  size_t allocated = 0, reserved = 0;
  bool fraction_set = false;
};

// What is told of segments as they come and go. Called under the heap's lock, so it must not call back.
class SegmentObserver {
 public:
  virtual ~SegmentObserver() = default;
  virtual void segment_reserved(int card, void* ptr, size_t bytes, int64_t stream) noexcept = 0;
  virtual void segment_released(int card, void* ptr, size_t bytes, int64_t stream) noexcept = 0;
};

// A block in use.
struct LiveBlock {
  size_t size = 0;       // after rounding
  size_t requested = 0;  // before rounding
  int64_t stream = 0;
  int card = -1;
};

// One segment and its blocks by address, as they were when asked.
struct SegmentRecord {
  struct Block {
    char* ptr;
    size_t size;
    size_t requested;  // 0 unless live
    bool live;
  };
  char* base;
  size_t size;
  PoolKind kind;
  int64_t stream;
  std::vector<Block> blocks;
};

class DeviceHeap {
 public:
  // `hbm`, `addresses` and `host` are shared by the heaps of all cards and must outlive them.
  DeviceHeap(sim::Hbm& hbm, AddressMap& addresses, HostBudget& host, int card, const AllocatorConfig& config);
  // Gives every segment back, also those with live blocks.
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // A block of at least `bytes` (0 < bytes <= 1 EiB) for `stream`; 512 B aligned. On refusal nullptr, and `*why` says
  // why.
  void* allocate(int64_t stream, size_t bytes, OutOfMemory* why);

  // Frees a block of any heap that shares `addresses`. False, and nothing done, when no live block starts at `ptr`.
  static bool free(AddressMap& addresses, void* ptr) noexcept;
  // The live block that starts at `ptr`; size 0 when there is none. Same scope as free().
  static LiveBlock live_block(AddressMap& addresses, const void* ptr) noexcept;
  // Start and size of the live block that holds `ptr`, {nullptr, 0} when none of this heap's does.
  std::pair<void*, size_t> block_of(const void* ptr) const;

  // Releases the segments that hold no live block.
  void empty_cache();

  // Counts bytes outside the pools against the card, emptying the cache if need be. False when the card is full.
  bool charge(size_t bytes, OutOfMemory* why);
  void discharge(size_t bytes) noexcept;
  // Bytes of the card that neither segments nor charges take.
  size_t card_free() const;

  void set_config(const AllocatorConfig& config);
  // Share of the card that segments may take, in [0, 1].
  void set_memory_fraction(double fraction);
  double memory_fraction() const;

  // As PyTorch would have them: merges warm blocks first.
  HeapStats stats() const;
  // {bytes in live blocks, bytes in segments}
  std::pair<size_t, size_t> usage() const;
  void reset_peak_stats();
  void reset_accumulated_stats();
  std::vector<SegmentRecord> snapshot() const;
  // nullptr to stop observing; `observer` must outlive that.
  void set_observer(SegmentObserver* observer);

  // Round a fork(): no other thread is inside the heap in between, so the child's copy is whole.
  void lock_for_fork() noexcept { lock_.lock(); }
  void unlock_after_fork() noexcept { lock_.unlock(); }

 private:
  struct StreamPools {
    StreamPools(DeviceHeap& heap, int64_t stream)
        : stream(stream),
          small(heap, stream, heap.stats_),
          large(heap, stream, heap.stats_, heap.addresses_, heap.config_) {}
    int64_t stream;
    SmallPool small;
    LargePool large;
  };
  struct Segment {
    size_t size;
    StreamPools* pools;
    SmallSegment* small;  // nullptr for one of the large pool
    LargeBlock* first;    // its lowest block, nullptr for one of the small pool
    bool oversize;        // at least max_split_size when reserved
    PoolKind kind() const { return small != nullptr ? PoolKind::kSmall : PoolKind::kLarge; }
  };

  StreamPools& pools_of(int64_t stream) {
    return last_pools_ != nullptr && last_pools_->stream == stream ? *last_pools_ : find_pools(stream);
  }
  StreamPools& find_pools(int64_t stream);
  bool is_small(size_t size) const { return size <= kMaxSmallRequest && config_.caching; }
  static void* take(StreamPools& pools, size_t size, size_t requested, bool small);

  bool grow(StreamPools& pools, size_t size, bool small, OutOfMemory* why);
  OutOfMemory::Reason try_reserve(StreamPools& pools, size_t bytes, bool small);
  void add_segment(StreamPools& pools, char* base, size_t bytes, bool small);
  void describe(OutOfMemory* why, OutOfMemory::Reason reason, size_t asked) const;

  static std::vector<SegmentRecord::Block> blocks_of(const Segment& segment);

  void collect_garbage();
  bool release_oversize(StreamPools& pools, size_t wanted);
  void release_unused();
  void release_small(SmallPool& pool, SmallSegment* segment);
  void release_large(LargePool& pool, LargeBlock* block);
  void release_segment(char* base);

  size_t allowed_bytes() const;
  size_t reserved_bytes() const { return static_cast<size_t>(stats_.reserved_bytes.current()); }

  sim::Hbm& hbm_;
  AddressMap& addresses_;
  HostBudget& host_;
  const int card_;

  mutable SpinLock lock_;  // guards what follows
  AllocatorConfig config_;
  HeapStats stats_;
  double fraction_ = 1.0;
  bool fraction_set_ = false;
  SegmentObserver* observer_ = nullptr;
  StreamPools* last_pools_ = nullptr;  // those of the last allocation
  std::map<int64_t, std::unique_ptr<StreamPools>> pools_;
  std::map<char*, Segment> segments_;
};

}  // namespace cann
