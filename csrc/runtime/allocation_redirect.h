#pragma once
// Makes the CPU kernels that run inside an npu operator allocate from a card's HBM.
//
// install_allocation_redirect() wraps PyTorch's CPU allocator once, at library load. While an AllocationRedirect lives,
// allocations of the *calling thread* come from the given card; elsewhere the stock allocator is used. OpenMP workers
// keep the stock one. Allocations of 16 MiB and more are checked against the host's memory, since the kernel is about
// to write them; they raise OutOfMemoryError as caching_allocator::allocate() does.

#include <c10/core/Device.h>

#include "runtime/thread_local.h"

namespace cann {

namespace detail {
extern CANN_FAST_THREAD_LOCAL c10::DeviceIndex t_redirect_device;  // -1: none
}

// `device` must be a valid index. Scopes nest; each restores the one around it.
class AllocationRedirect {
 public:
  // In place of a card: the stock allocator.
  static constexpr c10::DeviceIndex kHost = -1;

  explicit AllocationRedirect(c10::DeviceIndex device) : previous_(detail::t_redirect_device) {
    detail::t_redirect_device = device;
  }
  ~AllocationRedirect() { detail::t_redirect_device = previous_; }
  AllocationRedirect(const AllocationRedirect&) = delete;
  AllocationRedirect& operator=(const AllocationRedirect&) = delete;

 private:
  c10::DeviceIndex previous_;
};

// Idempotent. Memory is freed correctly whichever allocator made it, at any time later.
void install_allocation_redirect();

}  // namespace cann
