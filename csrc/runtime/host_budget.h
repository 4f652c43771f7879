#pragma once
// Keeps the segments that are about to be filled within what the host can back, all cards together.
//
// A segment costs host memory only once written, so one that was reserved but not yet written still has a claim. Each
// new segment is admitted only if the host can back it and all such claims; otherwise a model allocated empty and
// filled later would get the process killed half-way. Segments above kMaxSegment make no claim: they may be reserved to
// stay untouched, and whoever writes them checks (host_guard.h). Thread-safe; called under a heap's lock. Torch-free.

#include <cstddef>
#include <map>
#include <mutex>

#include "sim/host_memory.h"

namespace cann {

class HostBudget {
 public:
  static constexpr size_t kMaxSegment = size_t{64} << 20;

  // `margin`: bytes of host memory to leave free. `limited` false: segments never need the host's memory (a dry run).
  explicit HostBudget(size_t margin, bool limited = true) : margin_(margin), limited_(limited) {}

  // Whether the segment may be used; if so it is remembered until remove().
  bool admit(const void* segment, size_t bytes) {
    if (bytes > kMaxSegment || !limited_) return true;
    const std::lock_guard lock(mutex_);
    if (!affordable(bytes)) {
      // Counting pages takes milliseconds per GiB, so it waits until the upper bound no longer fits.
      unwritten_ = 0;
      for (const auto& [start, length] : segments_) unwritten_ += sim::untouched_bytes(start, length);
      if (!affordable(bytes)) return false;
    }
    segments_.emplace(segment, bytes);
    unwritten_ += bytes;
    return true;
  }
  // Before the segment's pages go back to the host. Segments that made no claim are ignored.
  void remove(const void* segment) {
    const std::lock_guard lock(mutex_);
    segments_.erase(segment);
  }

 private:
  // The claims count as if they were margin, so that only the new bytes are taken from the reading of what is
  // available.
  bool affordable(size_t bytes) const { return sim::host_can_write(nullptr, bytes, margin_ + unwritten_); }

  const size_t margin_;
  const bool limited_;
  std::mutex mutex_;  // guards what follows
  std::map<const void*, size_t> segments_;
  size_t unwritten_ = 0;  // at least the bytes of segments_ without a page behind them; exact when last counted
};

}  // namespace cann
