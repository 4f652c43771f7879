#include "distributed/wait_log.h"

#include <utility>

namespace cann::hccl {
namespace {

// Some minutes of a training, and some megabytes.
constexpr size_t kOperations = size_t{1} << 16;

}  // namespace

WaitLog& WaitLog::get() {
  static auto* const log = new WaitLog(kOperations);  // outlives lanes that are running at exit
  return *log;
}

void WaitLog::add(Entry entry) {
  std::lock_guard lock(mutex_);
  if (entries_.size() == capacity_) entries_.pop_front();
  entries_.push_back(std::move(entry));
}

std::vector<WaitLog::Entry> WaitLog::entries() const {
  std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

}  // namespace cann::hccl
