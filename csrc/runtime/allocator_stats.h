#pragma once
// Counters of the caching allocator. Plain numbers guarded by the lock of the heap that owns them; torch-free.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace cann {

enum class PoolKind : uint8_t { kSmall = 0, kLarge = 1 };

// One statistic in PyTorch's four forms, for one pool or for their sum.
struct StatValue {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

// One statistic of both pools. Peaks are noted when a value is about to fall and when it is read, not when it rises:
// that is half the work on the allocation path and gives the same maxima.
class Tally {
 public:
  void add(PoolKind kind, int64_t amount) {
    Side& side = sides_[static_cast<size_t>(kind)];
    side.current += amount;
    side.added += amount;
  }
  void remove(PoolKind kind, int64_t amount) {
    Side& side = sides_[static_cast<size_t>(kind)];
    side.peak = std::max(side.peak, side.current);
    peak_all_ = std::max(peak_all_, current());
    side.current -= amount;
  }

  int64_t current() const { return sides_[0].current + sides_[1].current; }
  StatValue value(PoolKind kind) const {
    const Side& side = sides_[static_cast<size_t>(kind)];
    return {.current = side.current,
            .peak = std::max(side.peak, side.current),
            .allocated = side.added - side.added_at_reset,
            .freed = side.added - side.current - side.freed_at_reset};
  }
  StatValue total() const {
    const StatValue small = value(PoolKind::kSmall), large = value(PoolKind::kLarge);
    return {.current = current(),
            .peak = std::max(peak_all_, current()),
            .allocated = small.allocated + large.allocated,
            .freed = small.freed + large.freed};
  }

  void reset_peak() {
    for (Side& side : sides_) side.peak = side.current;
    peak_all_ = current();
  }
  void reset_accumulated() {
    for (Side& side : sides_) {
      side.added_at_reset = side.added;
      side.freed_at_reset = side.added - side.current;
    }
  }

 private:
  struct Side {
    int64_t current = 0, added = 0, peak = 0;
    int64_t added_at_reset = 0, freed_at_reset = 0;
  };
  std::array<Side, 2> sides_;
  int64_t peak_all_ = 0;
};

// Statistics of one card's heap. A block is active exactly while it is allocated, because kernels end before the call
// that launched them returns; so PyTorch's "active" statistics are these of "allocation".
struct HeapStats {
  Tally allocation;       // live blocks
  Tally allocated_bytes;  // their sizes after rounding
  Tally requested_bytes;  // their sizes before rounding
  Tally segment;
  Tally reserved_bytes;  // sizes of the segments
  Tally inactive_split;  // free blocks that share their segment with others
  Tally inactive_split_bytes;
  Tally oversize_allocation;  // live blocks of at least max_split_size
  Tally oversize_segment;
  int64_t num_alloc_retries = 0;  // times the cache was emptied because the card was full
  int64_t num_ooms = 0;
  int64_t num_oom_rejections = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t large_frees = 0;  // never reset: dates the free blocks of the large pools

  template <typename Action>
  void for_each_tally(Action action) {
    for (Tally* tally : {&allocation, &allocated_bytes, &requested_bytes, &segment, &reserved_bytes, &inactive_split,
                         &inactive_split_bytes, &oversize_allocation, &oversize_segment}) {
      action(*tally);
    }
  }
  void reset_peak() {
    for_each_tally([](Tally& tally) { tally.reset_peak(); });
  }
  void reset_accumulated() {
    for_each_tally([](Tally& tally) { tally.reset_accumulated(); });
    num_alloc_retries = num_ooms = num_oom_rejections = num_device_alloc = num_device_free = 0;
  }
};

}  // namespace cann
