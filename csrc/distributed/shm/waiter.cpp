#include "distributed/shm/waiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace cann::hccl {
namespace {

// Words in shared memory: no FUTEX_PRIVATE_FLAG.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::raise() {
  value.fetch_add(1);
  wake();
}

void Signal::wake() {
  // Sequentially consistent, as the change before it: either the sleeper is seen here, or it sees the new value.
  if (sleepers.load() > 0) futex(value, FUTEX_WAKE, INT_MAX, nullptr);
}

void Signal::sleep(uint32_t seen, std::chrono::milliseconds longest) {
  const timespec timeout{static_cast<time_t>(longest.count() / 1000),
                         static_cast<long>(longest.count() % 1000) * 1000000};
  sleepers.fetch_add(1);
  futex(value, FUTEX_WAIT, seen, &timeout);
  sleepers.fetch_sub(1);
}

}  // namespace cann::hccl
