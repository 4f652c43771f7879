#pragma once
// History of what the caching allocator did, for torch.npu.memory._record_memory_history() and _snapshot().
//
// Off by default; the allocator asks enabled() (one relaxed load) before calling anything here. Entries are kept per
// card, the newest `max_entries` of them. Times are microseconds since the epoch. Thread-safe: its own mutex, taken
// last.

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/device_heap.h"

namespace cann {

class MemoryTrace final : public SegmentObserver {
 public:
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  using Context = std::shared_ptr<c10::GatheredContext>;

  static bool enabled() noexcept { return enabled_.load(std::memory_order_relaxed); }
  // In a forked child another thread's lock on the trace would never be released: nothing is recorded there.
  static void disable_after_fork() noexcept { enabled_.store(false, std::memory_order_relaxed); }
  // The one trace of the process; never destroyed.
  static MemoryTrace& get();

  // Starts or stops recording; stopping forgets everything. `create_context` may be null: no stacks.
  void configure(bool enabled, c10::CachingDeviceAllocator::CreateContextFn create_context, size_t max_entries,
                 c10::CachingDeviceAllocator::RecordContext when);

  // After an allocation, before a free, and when a request was refused with `free_bytes` left on the card.
  void allocated(const void* ptr, const LiveBlock& block);
  void freeing(const void* ptr, const LiveBlock& block);
  void refused(int card, size_t asked, size_t free_bytes, int64_t stream);

  void segment_reserved(int card, void* ptr, size_t bytes, int64_t stream) noexcept override;
  void segment_released(int card, void* ptr, size_t bytes, int64_t stream) noexcept override;

  // Where the live block at `ptr` was allocated, nullptr if not recorded.
  Context context_of(const void* ptr);
  // One list per card, oldest first.
  std::vector<std::vector<Entry>> entries(size_t cards);

 private:
  using RecordContext = c10::CachingDeviceAllocator::RecordContext;

  Context context_for(RecordContext level);
  // Caller holds mutex_.
  void append(Entry::Action action, int card, size_t address, size_t bytes, int64_t stream, Context context);

  static std::atomic<bool> enabled_;

  std::mutex mutex_;  // guards what follows
  c10::CachingDeviceAllocator::CreateContextFn create_context_ = nullptr;
  RecordContext when_ = RecordContext::NEVER;
  size_t max_entries_ = 1;
  std::vector<std::deque<Entry>> per_card_;
  std::unordered_map<const void*, Context> live_contexts_;
};

}  // namespace cann
