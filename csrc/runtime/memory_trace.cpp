#include "runtime/memory_trace.h"

#include <chrono>
#include <utility>

#include "runtime/device_heaps.h"

namespace cann {

std::atomic<bool> MemoryTrace::enabled_{false};

MemoryTrace& MemoryTrace::get() {
  static auto* const trace = new MemoryTrace();
  return *trace;
}

void MemoryTrace::configure(bool enabled, c10::CachingDeviceAllocator::CreateContextFn create_context,
                            size_t max_entries, RecordContext when) {
  DeviceHeaps& heaps = DeviceHeaps::get();
  {
    const std::lock_guard lock(mutex_);
    create_context_ = enabled ? create_context : nullptr;
    when_ = enabled ? when : RecordContext::NEVER;
    max_entries_ = std::max<size_t>(max_entries, 1);
    if (!enabled) {
      per_card_.clear();
      live_contexts_.clear();
    }
    enabled_.store(enabled, std::memory_order_relaxed);
  }
  // Not under mutex_: a heap calls its observer under its own lock.
  for (const auto& heap : heaps) heap->set_observer(enabled ? this : nullptr);
}

MemoryTrace::Context MemoryTrace::context_for(RecordContext level) {
  c10::CachingDeviceAllocator::CreateContextFn create = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (when_ >= level) create = create_context_;
  }
  // Not under mutex_: gathering a Python stack takes the interpreter's lock.
  return create == nullptr ? nullptr : create();
}

void MemoryTrace::append(Entry::Action action, int card, size_t address, size_t bytes, int64_t stream,
                         Context context) {
  if (!enabled()) return;
  if (per_card_.size() <= static_cast<size_t>(card)) per_card_.resize(static_cast<size_t>(card) + 1);
  auto& entries = per_card_[static_cast<size_t>(card)];
  while (entries.size() >= max_entries_) entries.pop_front();
  Entry& entry =
      entries.emplace_back(action, static_cast<c10::DeviceIndex>(card), address, bytes, reinterpret_cast<void*>(stream),
                           c10::MempoolId_t{0, 0}, /*time=*/0, std::move(context));
  entry.time_.t_ =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
}

void MemoryTrace::allocated(const void* ptr, const LiveBlock& block) {
  Context context = context_for(RecordContext::STATE);
  const std::lock_guard lock(mutex_);
  if (context != nullptr) live_contexts_[ptr] = context;
  append(Entry::ALLOC, block.card, reinterpret_cast<size_t>(ptr), block.requested, block.stream,
         when_ >= RecordContext::ALLOC ? std::move(context) : nullptr);
}

void MemoryTrace::freeing(const void* ptr, const LiveBlock& block) {
  Context context = context_for(RecordContext::ALL);
  const std::lock_guard lock(mutex_);
  live_contexts_.erase(ptr);
  // A free completes at once, since no kernel can still be running on the block.
  for (const auto action : {Entry::FREE_REQUESTED, Entry::FREE_COMPLETED}) {
    append(action, block.card, reinterpret_cast<size_t>(ptr), block.requested, block.stream, context);
  }
}

void MemoryTrace::refused(int card, size_t asked, size_t free_bytes, int64_t stream) {
  Context context = context_for(RecordContext::ALLOC);
  const std::lock_guard lock(mutex_);
  append(Entry::OOM, card, free_bytes, asked, stream, std::move(context));
}

void MemoryTrace::segment_reserved(int card, void* ptr, size_t bytes, int64_t stream) noexcept {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  append(Entry::SEGMENT_ALLOC, card, reinterpret_cast<size_t>(ptr), bytes, stream, nullptr);
}

void MemoryTrace::segment_released(int card, void* ptr, size_t bytes, int64_t stream) noexcept {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  append(Entry::SEGMENT_FREE, card, reinterpret_cast<size_t>(ptr), bytes, stream, nullptr);
}

MemoryTrace::Context MemoryTrace::context_of(const void* ptr) {
  const std::lock_guard lock(mutex_);
  const auto it = live_contexts_.find(ptr);
  return it == live_contexts_.end() ? nullptr : it->second;
}

std::vector<std::vector<MemoryTrace::Entry>> MemoryTrace::entries(size_t cards) {
  std::vector<std::vector<Entry>> result(cards);
  const std::lock_guard lock(mutex_);
  for (size_t card = 0; card < std::min(cards, per_card_.size()); ++card) {
    result[card].assign(per_card_[card].begin(), per_card_[card].end());
  }
  return result;
}

}  // namespace cann
