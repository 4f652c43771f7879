#pragma once
// How long the last operations of this process ran, and waited for other ranks. Operations that a profiler listened to
// when they were issued are noted; only the profiler reads. Thread-safe. No torch here.

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace cann::hccl {

class WaitLog {
 public:
  // `group` by its unique name, `sequence` as in WorkHCCL::Info: transfers count apart from collectives.
  struct Entry {
    std::string group;
    bool p2p;
    uint64_t sequence;
    std::chrono::nanoseconds ran;              // without the time in the queue of its group
    std::chrono::nanoseconds waited;           // of that
    std::chrono::nanoseconds synchronization;  // of that
  };

  // The process's.
  static WaitLog& get();

  explicit WaitLog(size_t capacity) : capacity_(capacity) {}
  // Forgets the oldest entry when full.
  void add(Entry entry);
  // Oldest first.
  std::vector<Entry> entries() const;

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace cann::hccl
