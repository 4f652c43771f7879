#include "distributed/unseen_errors.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace cann::hccl {
namespace {

constexpr std::chrono::seconds kGrace(5);

}  // namespace

void UnseenErrors::failed(const std::string& text) noexcept {
  if (handling_ != ErrorHandling::kTearDown || watching_.exchange(true)) return;
  try {
    // Holds nothing of the group, so it may outlive it: a group that was dropped with its errors unseen counts.
    std::thread([self = shared_from_this(), text] {
      std::this_thread::sleep_for(kGrace);
      if (self->seen_.load()) return;
      std::fprintf(stderr,
                   "%s\nNobody has asked for the outcome of this operation for 5 s. The process is ended, as "
                   "TORCH_HCCL_ASYNC_ERROR_HANDLING asks for; 0 or 2 would let it go on.\n",
                   text.c_str());
      std::abort();
    }).detach();
  } catch (const std::exception&) {
    // No thread to be had: the error is still told by every later operation.
  }
}

}  // namespace cann::hccl
