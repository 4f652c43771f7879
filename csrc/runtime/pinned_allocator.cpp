#include "runtime/pinned_allocator.h"

#include <pthread.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_heaps.h"
#include "runtime/host_guard.h"
#include "runtime/virtual_memory.h"
#include "sim/env.h"
#include "sim/host_memory.h"

namespace cann {
namespace {

constexpr size_t kPage = 4096;

class PinnedAllocator final : public at::HostAllocator {
 public:
  static PinnedAllocator& get() {
    static auto* const allocator = [] {
      auto* made = new PinnedAllocator();
      pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().mutex_.unlock(); });
      return made;
    }();
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* ptr = bytes == 0 ? nullptr : take(block_size(bytes), bytes);
    return {ptr, ptr, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, size_t count) const override { default_copy_data(dest, src, count); }

  // Copies have ended when the call that made them returns, so there is no event to wait for.
  bool record_event(void* ptr, void* /*ctx*/, c10::Stream /*stream*/) override { return holds(ptr); }

  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  bool holds(const void* ptr);

 private:
  struct Block {
    size_t size;
    bool live;
  };

  static size_t block_size(size_t bytes);
  static void free_block(void* ptr) { get().give(ptr); }
  void* take(size_t size, size_t requested);
  void* take_cached(size_t size);
  void* map_block(size_t size);
  void give(void* ptr);
  void mark_live(void* ptr, size_t size);
  // Caller holds mutex_; `ptr` is not in a free list.
  void release(void* ptr);

  std::mutex mutex_;  // guards all but the bounds
  std::map<uintptr_t, Block> blocks_;
  std::map<size_t, std::vector<void*>> free_;  // by size
  at::HostStats stats_;
  // Every block ever made lies between these: most pointers are told apart by them, without the lock.
  std::atomic<uintptr_t> lowest_{UINTPTR_MAX};
  std::atomic<uintptr_t> highest_{0};
};

size_t PinnedAllocator::block_size(size_t bytes) {
  if (bytes <= allocator_config().pinned_max_round) return std::bit_ceil(std::max(bytes, kPage));
  return AllocatorConfig::round_to(bytes, kPage);
}

void* PinnedAllocator::take(size_t size, size_t requested) {
  TORCH_CHECK_WITH(OutOfMemoryError, size >= requested,
                   "NPU out of memory. Tried to allocate more than 1EB pinned memory.");
  if (void* ptr = take_cached(size)) return ptr;
  if (void* ptr = map_block(size)) return ptr;
  // Cached blocks of other sizes may hold the pages that are missing.
  empty_cache();
  if (void* ptr = map_block(size)) return ptr;
  raise_host_out_of_memory(size, -1);
}

void* PinnedAllocator::take_cached(size_t size) {
  const std::lock_guard lock(mutex_);
  const auto it = free_.find(size);
  if (it == free_.end()) return nullptr;
  void* ptr = it->second.back();
  it->second.pop_back();
  if (it->second.empty()) free_.erase(it);
  mark_live(ptr, size);
  return ptr;
}

// nullptr when the host cannot back so much.
void* PinnedAllocator::map_block(size_t size) {
  if (!sim::host_can_write(nullptr, size, sim::Env::get().host_margin_bytes)) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  void* ptr = map_pages(size);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  if (ptr == nullptr) return nullptr;

  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  lowest_.store(std::min(lowest_.load(std::memory_order_relaxed), address), std::memory_order_relaxed);
  highest_.store(std::max(highest_.load(std::memory_order_relaxed), address + size), std::memory_order_release);
  stats_.allocations.increase(1);
  stats_.allocated_bytes.increase(size);
  stats_.host_alloc_time.increase(std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count());
  ++stats_.num_host_alloc;
  ++stats_.bucket_allocation[static_cast<size_t>(std::bit_width(size - 1))];
  mark_live(ptr, size);
  return ptr;
}

void PinnedAllocator::mark_live(void* ptr, size_t size) {
  blocks_[reinterpret_cast<uintptr_t>(ptr)] = {size, true};
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(size);
}

void PinnedAllocator::give(void* ptr) {
  if (ptr == nullptr) return;
  const size_t max_cached = allocator_config().pinned_max_cached;
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(reinterpret_cast<uintptr_t>(ptr));
  if (it == blocks_.end() || !it->second.live) return;
  Block& block = it->second;
  block.live = false;
  stats_.active_requests.decrease(1);
  stats_.active_bytes.decrease(block.size);
  if (block.size > max_cached) {
    release(ptr);
  } else {
    free_[block.size].push_back(ptr);
  }
}

void PinnedAllocator::release(void* ptr) {
  const auto it = blocks_.find(reinterpret_cast<uintptr_t>(ptr));
  const size_t size = it->second.size;
  blocks_.erase(it);
  const auto start = std::chrono::steady_clock::now();
  unmap_pages(ptr, size);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  stats_.allocations.decrease(1);
  stats_.allocated_bytes.decrease(size);
  stats_.host_free_time.increase(std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count());
  ++stats_.num_host_free;
}

void PinnedAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (const auto& [size, blocks] : free_) {
    for (void* ptr : blocks) release(ptr);
  }
  free_.clear();
}

at::HostStats PinnedAllocator::get_stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void PinnedAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes}) {
    stat->reset_accumulated();
  }
  stats_.host_alloc_time.reset_accumulated();
  stats_.host_free_time.reset_accumulated();
  stats_.num_host_alloc = stats_.num_host_free = 0;
}

void PinnedAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes}) {
    stat->reset_peak();
  }
  stats_.host_alloc_time.reset_peak();
  stats_.host_free_time.reset_peak();
}

bool PinnedAllocator::holds(const void* ptr) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  if (address >= highest_.load(std::memory_order_acquire) || address < lowest_.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  return it->second.live && address < it->first + it->second.size;
}

}  // namespace

at::HostAllocator* pinned_allocator() { return &PinnedAllocator::get(); }

void install_pinned_allocator() { at::setHostAllocator(kNPU, pinned_allocator()); }

bool is_pinned_ptr(const void* ptr) { return PinnedAllocator::get().holds(ptr); }

}  // namespace cann
