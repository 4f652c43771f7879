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
// Where each rank can have a core, and so whoever is waited for runs already, yields are cheaper than to be woken up,
// which takes tens of microseconds where an idle core has to be started first. Elsewhere a yield may last as long as a
// time slice of somebody else.
inline constexpr int kYields = 2;
inline constexpr int kPatientYields = 100;

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether `done()` became true without sleeping.
template <typename Done>
bool spin_until(Done&& done, int yields = kYields) {
  for (int i = 0; i < kPauses; ++i) {
    if (done()) return true;
    pause_processor();
  }
  for (int i = 0; i < yields; ++i) {
    if (done()) return true;
    sched_yield();
  }
  return done();
}

}  // namespace cann::hccl
