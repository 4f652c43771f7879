#include "distributed/flight_recorder.h"

#include <fmt/format.h>

#include <fstream>

#include "distributed/hccl_env.h"

namespace cann::hccl {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

int64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

FlightRecorder& FlightRecorder::get() {
  static auto* const recorder = new FlightRecorder(HcclEnv::get().trace_entries, HcclEnv::get().trace_file);
  return *recorder;
}

uint64_t FlightRecorder::issued(const std::string& group, int rank, const char* title, uint64_t sequence,
                                uint64_t bytes) {
  std::lock_guard lock(mutex_);
  entries_.push_back({next_, group, rank, title, sequence, bytes, "scheduled", "", Clock::now(), {}});
  if (entries_.size() > capacity_) entries_.pop_front();
  return next_++;
}

void FlightRecorder::ended(uint64_t number, const std::string& failure) {
  std::unique_lock lock(mutex_);
  // Numbers are consecutive; an entry may have been pushed out since.
  if (entries_.empty() || number < entries_.front().number) return;
  Entry& entry = entries_[number - entries_.front().number];
  entry.state = failure.empty() ? "completed" : "failed";
  entry.failure = failure;
  entry.ended = Clock::now();
  if (failure.empty() || written_) return;
  written_ = true;
  const int rank = entry.rank;
  lock.unlock();
  write_file(rank);
}

std::string FlightRecorder::to_json(bool only_active) const {
  std::lock_guard lock(mutex_);
  std::string text = R"({"version": "2.10", "entries": [)";
  bool first = true;
  for (const Entry& entry : entries_) {
    const bool active = entry.ended == Clock::time_point();
    if (only_active && !active) continue;
    text += fmt::format(
        R"({}{{"record_id": {}, "pg_name": {}, "rank": {}, "profiling_name": {}, "collective_seq_id": {}, "bytes": {}, )"
        R"("state": "{}", "time_created_ns": {}, "time_ended_ns": {}, "failure": {}}})",
        first ? "" : ", ", entry.number, quoted(entry.group), entry.rank, quoted(entry.title), entry.sequence,
        entry.bytes, entry.state, nanoseconds(entry.issued), active ? "null" : std::to_string(nanoseconds(entry.ended)),
        quoted(entry.failure));
    first = false;
  }
  return text + "]}";
}

void FlightRecorder::write_file(int rank) const {
  std::ofstream file(fmt::format("{}{}", file_prefix_, rank));
  file << to_json(/*only_active=*/false) << '\n';
}

}  // namespace cann::hccl
