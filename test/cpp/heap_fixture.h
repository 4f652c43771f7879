#pragma once
// One card with a heap on it, for the tests of the caching allocator.

#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "runtime/device_heap.h"

namespace cann {

class HeapTest : public testing::Test {
 protected:
  static constexpr size_t kMiB = size_t{1} << 20;

  // Replaces the card; what was allocated on the old one is gone.
  void make(size_t capacity, std::string_view options = "", bool caching = true) {
    heap.reset();
    AllocatorConfig config;
    config.apply(options);
    config.caching = caching;
    hbm = std::make_unique<sim::Hbm>(1, capacity, /*huge_pages=*/false);
    addresses = std::make_unique<AddressMap>(hbm->begin(), hbm->end());
    host = std::make_unique<HostBudget>(/*margin=*/0);
    heap = std::make_unique<DeviceHeap>(*hbm, *addresses, *host, /*card=*/0, config);
  }

  void* allocate(size_t bytes, int64_t stream = 0) { return heap->allocate(stream, bytes, &why); }
  bool free(void* ptr) { return DeviceHeap::free(*addresses, ptr); }
  LiveBlock live_block(const void* ptr) { return DeviceHeap::live_block(*addresses, ptr); }
  size_t reserved() const { return static_cast<size_t>(heap->stats().reserved_bytes.current()); }
  size_t allocated() const { return static_cast<size_t>(heap->stats().allocated_bytes.current()); }

  std::unique_ptr<sim::Hbm> hbm;
  std::unique_ptr<AddressMap> addresses;
  std::unique_ptr<HostBudget> host;
  std::unique_ptr<DeviceHeap> heap;
  OutOfMemory why;
};

}  // namespace cann
