#pragma once
// A lock for sections of a few tens of nanoseconds, at about a third of the price of an uncontended std::mutex pair.
// A waiter spins briefly, then yields its core, so that a holder that was preempted can finish. Not recursive, not
// fair.

#include <sched.h>

#include <atomic>

namespace cann {

class SpinLock {
 public:
  void lock() noexcept {
    while (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void wait() const noexcept {
    constexpr int kSpins = 64;
    for (int spins = 0; held_.load(std::memory_order_relaxed); ++spins) {
      if (spins < kSpins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      } else {
        sched_yield();
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace cann
