#include "runtime/allocation_redirect.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "runtime/caching_allocator.h"
#include "runtime/device_heaps.h"
#include "runtime/host_guard.h"

namespace cann {

namespace detail {
CANN_FAST_THREAD_LOCAL c10::DeviceIndex t_redirect_device = -1;
}  // namespace detail

namespace {

// A kernel is about to write what it allocates here, so that the host's memory matters from smaller sizes on than for
// tensors that may stay untouched.
constexpr size_t kCheckedOutputBytes = size_t{16} << 20;

// The deleter of the allocator that was installed before ours.
c10::DeleterFnPtr g_stock_deleter = nullptr;

void free_any(void* ptr) {
  const AddressMap* addresses = DeviceHeaps::addresses();
  if (addresses != nullptr && addresses->contains(ptr)) return caching_allocator::free(ptr);
  g_stock_deleter(ptr);
}

class RedirectingAllocator final : public c10::Allocator {
 public:
  explicit RedirectingAllocator(c10::Allocator* stock) : stock_(stock) {}

  // DataPtrs keep the deleter of the allocator that made them, so that the stock path costs one comparison and nothing
  // when freed. raw_deleter() takes either kind, which is all that raw_allocate() and raw_deallocate() ask of it.
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = detail::t_redirect_device;
    return device < 0 ? stock_->allocate(bytes) : allocate_on_card(device, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  bool is_simple_data_ptr(const c10::DataPtr& data_ptr) const override { return stock_->is_simple_data_ptr(data_ptr); }
  void copy_data(void* dest, const void* src, size_t count) const override { stock_->copy_data(dest, src, count); }

 private:
  static c10::DataPtr allocate_on_card(c10::DeviceIndex device, size_t bytes) {
    void* ptr = caching_allocator::allocate(device, bytes);
    c10::DataPtr data(ptr, ptr, &caching_allocator::free, c10::Device(c10::kCPU));
    if (C10_UNLIKELY(bytes >= kCheckedOutputBytes)) detail::check_large_write(ptr, bytes);
    return data;
  }

  c10::Allocator* stock_;
};

}  // namespace

void install_allocation_redirect() {
  // Above the default priority 0, so that a later registration at that priority does not undo ours.
  constexpr uint8_t kPriority = 10;
  static const bool installed = [] {
    c10::Allocator* stock = c10::GetCPUAllocator();
    g_stock_deleter = stock->raw_deleter();
    TORCH_CHECK(g_stock_deleter != nullptr,
                "The installed CPU allocator has no raw deleter, so npu kernels cannot allocate through it.");
    c10::SetCPUAllocator(new RedirectingAllocator(stock), kPriority);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace cann
