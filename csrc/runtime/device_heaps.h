#pragma once
// The heaps of all cards and the map from addresses to their blocks: the state behind cann::caching_allocator, shared
// by the files that implement it. Made when the device is initialised, never destroyed (tensors outlive static
// destructors).
//
// Thread-safe. fork() is safe too: the heaps' locks are held across it, so that a child can still free what it
// inherited.

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/address_map.h"
#include "runtime/allocator_config.h"
#include "runtime/device_heap.h"

namespace cann {

class DeviceHeaps {
 public:
  // Initialises the device; raises as lazy_init() does.
  static DeviceHeaps& get() {
    DeviceHeaps* heaps = instance_.load(std::memory_order_acquire);
    return C10_LIKELY(heaps != nullptr) ? *heaps : initialize();
  }
  // nullptr before initialisation.
  static DeviceHeaps* if_initialized() noexcept { return instance_.load(std::memory_order_acquire); }
  // The map, also in a forked child; nullptr when nothing can have been allocated.
  static AddressMap* addresses() noexcept { return addresses_of_process_.load(std::memory_order_acquire); }

  // Precondition: 0 <= device < size().
  DeviceHeap& operator[](c10::DeviceIndex device) { return *heaps_[static_cast<size_t>(device)]; }
  size_t size() const { return heaps_.size(); }
  auto begin() const { return heaps_.begin(); }
  auto end() const { return heaps_.end(); }

 private:
  DeviceHeaps();
  static DeviceHeaps& initialize();

  static std::atomic<DeviceHeaps*> instance_;
  static std::atomic<AddressMap*> addresses_of_process_;

  AddressMap addresses_;
  HostBudget host_;
  std::vector<std::unique_ptr<DeviceHeap>> heaps_;
};

// The options in force for every card; read from Env at first use (raises ValueError if those are malformed).
AllocatorConfig allocator_config();
// Changes them and passes them on to the heaps that exist. Raises ValueError, changing nothing, when malformed.
void apply_allocator_settings(const std::string& settings);

}  // namespace cann
