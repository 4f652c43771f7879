#pragma once
// What TORCH_HCCL_ASYNC_ERROR_HANDLING=1 or 3 asks for: a failure that the script does not notice ends the process.
//
// The errors of a process group reach the script through wait(), the future, or any later operation. When none of them
// has been asked within a grace period of 5 s after a failure, what the script computes on is not what it thinks, and
// the process is ended with SIGABRT, as torch_npu's watchdog does. Shared by a process group and its work objects;
// thread-safe.

#include <atomic>
#include <memory>
#include <string>

#include "distributed/hccl_env.h"

namespace cann::hccl {

class UnseenErrors : public std::enable_shared_from_this<UnseenErrors> {
 public:
  explicit UnseenErrors(ErrorHandling handling) : handling_(handling) {}

  // An operation has failed with `text`. The first one starts the grace period, on a thread of its own.
  void failed(const std::string& text) noexcept;
  // The script has been told, or the group was ended on purpose.
  void seen() noexcept { seen_.store(true); }

 private:
  const ErrorHandling handling_;
  std::atomic<bool> watching_{false};
  std::atomic<bool> seen_{false};
};

}  // namespace cann::hccl
