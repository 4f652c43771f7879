#pragma once
// Waiting for another process to change a word: a few pauses, a few yields of the processor, then sleep.
//
// Long spinning is what ruins collectives when there are more ranks than cores: the rank that spins holds the core that
// the rank it waits for needs. A yield gives the core away if anybody wants it, so it is safe at any number of ranks.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cann::hccl {

// A word to wait for, in shared memory, and how many sleep on it.
struct alignas(64) Signal {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Changes the value and wakes who sleeps.
  void raise();
  // Wakes who sleeps, for nothing.
  void wake();
  // Sleeps until raised, woken for nothing, or `longest` has passed. Returns at once if the value is not `seen`.
  void sleep(uint32_t seen, std::chrono::milliseconds longest);
};

inline constexpr int kPauses = 20;
// To be woken up takes tens of microseconds, more where an idle core has to be started first; a yield takes one. So a
// waiter yields for as long as an operation among ranks that are all there may take, but only while its yields are
// short: then whoever else is on this core waits too, or soon will. One that lasts long says that somebody needs the
// core to compute, and might keep it for a time slice after the word has changed; a sleeper gets it back at once.
inline constexpr std::chrono::microseconds kYieldFor(300);
inline constexpr std::chrono::microseconds kLongYield(100);

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether `done()` became true without sleeping.
template <typename Done>
bool spin_until(Done&& done) {
  for (int i = 0; i < kPauses; ++i) {
    if (done()) return true;
    pause_processor();
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (auto before = start, now = start; now - start < kYieldFor && now - before < kLongYield;) {
    before = now;
    sched_yield();
    if (done()) return true;
    now = Clock::now();
  }
  return false;
}

}  // namespace cann::hccl
