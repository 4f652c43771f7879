#pragma once
// Options of the caching allocators (device and pinned), as PYTORCH_NPU_ALLOC_CONF spells them. Torch-free value type.
//
// Sizes follow PyTorch: requests are rounded up to 512 B; up to 1 MiB they share 2 MiB segments, below half a large
// segment they share large segments (20 MiB), and beyond that they get their own, rounded up to 2 MiB.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cann {

inline constexpr size_t kMinBlockSize = 512;              // unit of rounding
inline constexpr size_t kMaxSmallRequest = 1 << 20;       // largest request of the small pool
inline constexpr size_t kSmallSegmentSize = 2 << 20;      // segment of the small pool
inline constexpr size_t kLargeSegmentRounding = 2 << 20;  // unit of the large pool's segments
inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

struct AllocatorConfig {
  // large_segment_size_mb, segment_size_mb
  size_t large_segment_size = size_t{20} << 20;
  // max_split_size_mb: blocks at least this large are neither split nor lent to smaller requests
  size_t max_split_size = kNoLimit;
  // max_non_split_rounding_mb: how much larger than the request an unsplit block may be
  size_t max_non_split_rounding = size_t{20} << 20;
  // garbage_collection_threshold: share of the allowed memory above which unused segments are released, oldest first;
  // 0 is off
  double garbage_collection_threshold = 0;
  // roundup_power2_divisions: for requests in [2^i, 2^(i+1)) MiB, the number of steps between powers of two; 0 is off.
  // The first entry also covers smaller requests, the last larger ones.
  static constexpr size_t kRoundupIntervals = 16;
  std::array<uint32_t, kRoundupIntervals> roundup_power2_divisions{};
  // expandable_segments: accepted and remembered. Segments here are ranges of a reservation four times the card, so
  // they do not fragment the card and need not grow.
  bool expandable_segments = false;
  // per_process_memory_fraction
  std::optional<double> memory_fraction;
  // throw_on_npumalloc_oom: a request beyond the memory fraction is rejected at once, without emptying the cache
  bool reject_beyond_fraction = false;
  // pinned_max_round_threshold_mb, pinned_max_cached_size_mb
  size_t pinned_max_round = kNoLimit;
  size_t pinned_max_cached = kNoLimit;
  // Not an option of the string: Env::memory_caching.
  bool caching = true;

  // Applies "key:value,key:[a:b,>:c]"; keys that are not mentioned keep their values. Throws std::invalid_argument
  // naming the key and what is allowed, and then changes nothing.
  void apply(std::string_view text);

  // Keys that apply() knows, sorted.
  static std::vector<std::string_view> option_names();

  // Size of the block that serves a request of `bytes` > 0.
  size_t block_size(size_t bytes) const {
    return roundup_enabled ? roundup_size(bytes) : round_to(bytes, kMinBlockSize);
  }
  // Size of the segment reserved for a block of `size` when none is cached.
  size_t segment_size(size_t size) const {
    if (!caching) return round_to(size, kLargeSegmentRounding);
    if (size <= kMaxSmallRequest) return kSmallSegmentSize;
    if (size < large_segment_size / 2) return large_segment_size;
    return round_to(size, kLargeSegmentRounding);
  }

  static constexpr size_t round_to(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

  bool roundup_enabled = false;  // some entry of roundup_power2_divisions is above 1

 private:
  size_t roundup_size(size_t bytes) const;
};

}  // namespace cann
