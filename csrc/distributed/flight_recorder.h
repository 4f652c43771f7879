#pragma once
// The last operations of this process's groups, written to a file when one fails: what a rank was doing is what
// explains why another one waited.
//
// TORCH_HCCL_TRACE_BUFFER_SIZE operations are kept, none by default. The first failure writes them as JSON to
// TORCH_HCCL_DEBUG_INFO_TEMP_FILE + the rank. Thread-safe. No torch here.

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace cann::hccl {

class FlightRecorder {
 public:
  static FlightRecorder& get();

  // 0 keeps nothing.
  FlightRecorder(size_t capacity, std::string file_prefix)
      : capacity_(capacity), file_prefix_(std::move(file_prefix)) {}
  bool on() const { return capacity_ > 0; }

  // An operation has been issued. Returns its number, to be passed to ended().
  uint64_t issued(const std::string& group, int rank, const char* title, uint64_t sequence, uint64_t bytes);
  // It has ended; `failure` is empty if well. The first failure of the process writes the file.
  void ended(uint64_t number, const std::string& failure);

  // {"version": ..., "entries": [...]}, oldest first; with `only_active` those that have not ended.
  std::string to_json(bool only_active) const;

 private:
  using Clock = std::chrono::system_clock;
  struct Entry {
    uint64_t number;
    std::string group;
    int rank;
    std::string title;
    uint64_t sequence;
    uint64_t bytes;
    const char* state;  // "scheduled", "completed", "failed"
    std::string failure;
    Clock::time_point issued;
    Clock::time_point ended;
  };
  void write_file(int rank) const;

  const size_t capacity_;
  const std::string file_prefix_;
  mutable std::mutex mutex_;  // guards what follows
  std::deque<Entry> entries_;
  uint64_t next_ = 0;
  bool written_ = false;
};

}  // namespace cann::hccl
