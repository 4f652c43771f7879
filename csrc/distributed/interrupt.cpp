#include "distributed/interrupt.h"

#include <atomic>

namespace cann::hccl {
namespace {

std::atomic<InterruptCheck> g_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) { g_check.store(check); }

void check_interrupt() {
  if (const InterruptCheck check = g_check.load()) check();
}

}  // namespace cann::hccl
