#include "distributed/shm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "distributed/interrupt.h"
#include "distributed/wait_meter.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;

// How often a rank that waits looks after those it waits for.
constexpr std::chrono::milliseconds kLookEvery(50);

}  // namespace

Communicator::Communicator(ControlBlock block, std::shared_ptr<void> owner, int rank,
                           std::vector<std::shared_ptr<PeerProcess>> peers, sim::Hbm* hbm)
    : block_(block), owner_(std::move(owner)), rank_(rank), peers_(std::move(peers)), hbm_(hbm) {}

void Communicator::meet(const Call& call) {
  Control& control = block_.control();
  const uint32_t generation = control.generation.value.load(std::memory_order_acquire);
  const uint32_t step = ++step_;
  block_.state(rank_).step.store(step, std::memory_order_release);
  if (control.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size())) {
    control.arrivals.store(0, std::memory_order_relaxed);
    control.generation.raise();
    return;
  }
  const auto done = [&] { return control.generation.value.load(std::memory_order_acquire) != generation; };
  {
    const Waiting waiting;
    if (spin_until(done)) return;
  }
  // Signed difference: steps wrap.
  wait(call, control.generation, done, [&](int rank) {
    return static_cast<int32_t>(block_.state(rank).step.load(std::memory_order_acquire) - step) < 0;
  });
}

bool Communicator::is_ahead(int rank) const {
  return static_cast<int32_t>(block_.state(rank).step.load(std::memory_order_acquire) - step_) > 0;
}

void Communicator::wait(const Call& call, Signal& signal, const std::function<bool()>& done,
                        const std::function<bool(int)>& missing, bool any) {
  while (true) {
    const uint32_t seen = signal.value.load();
    if (done()) return;
    check_usable();
    {
      const Waiting waiting;
      signal.sleep(seen, std::min(kLookEvery, call.deadline.remaining()));
    }
    if (signal.value.load() != seen) continue;
    if (done()) return;
    check_peers(missing, any);
    check_interrupt();
    if (!call.deadline.expired()) continue;
    throw EngineError(Kind::kTimeout, fmt::format("no answer from {}", list_missing(missing)));
  }
}

void Communicator::check_peers(const std::function<bool(int)>& missing, bool any) const {
  std::string lost;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_ || !missing(rank)) continue;
    const bool left = block_.state(rank).left.load(std::memory_order_acquire) != 0;
    const PeerProcess* process = peers_[static_cast<size_t>(rank)].get();
    const bool ended = process != nullptr && process->has_ended();
    if (!left && !ended) {
      if (any) return;
      continue;
    }
    // It may have done its part before it went.
    if (!missing(rank)) continue;
    if (!lost.empty()) lost += ", ";
    lost += left ? fmt::format("rank {} has left the group", rank)
                 : fmt::format("the process of rank {} (pid {}) has ended", rank, process->pid());
    if (!any) break;
  }
  if (!lost.empty()) throw EngineError(Kind::kRemote, lost);
}

std::string Communicator::list_missing(const std::function<bool(int)>& missing) const {
  std::string ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_ || !missing(rank)) continue;
    if (!ranks.empty()) ranks += ", ";
    ranks += fmt::format("rank {}", rank);
    const PeerProcess* process = peers_[static_cast<size_t>(rank)].get();
    if (process != nullptr && process->is_stopped()) ranks += fmt::format(" (pid {} is stopped)", process->pid());
  }
  return ranks.empty() ? "the peers" : ranks;
}

std::optional<uint64_t> Communicator::hbm_offset(const Span& span) const {
  return hbm_ == nullptr ? std::nullopt : hbm_->shared_offset(span.data, span.bytes);
}

std::byte* Communicator::hbm(int rank, uint64_t offset, uint64_t bytes) const {
  const PeerProcess* peer = peers_[static_cast<size_t>(rank)].get();
  std::byte* place = nullptr;
  if (peer == nullptr) {  // this process, of which several ranks may be threads
    const uint64_t end = hbm_ == nullptr ? 0 : hbm_->end() - hbm_->begin();
    if (offset <= end && bytes <= end - offset) place = reinterpret_cast<std::byte*>(hbm_->begin() + offset);
  } else {
    place = peers_[static_cast<size_t>(rank)]->hbm(offset, bytes);
  }
  if (place != nullptr) return place;
  throw EngineError(Kind::kRemote, fmt::format("{} bytes at {:#x} of rank {}'s HBM, which it announced, cannot be "
                                               "mapped (TORCH_CANN_SHARED_HBM=0 on all ranks does without mapping)",
                                               bytes, offset, rank));
}

void Communicator::wake_all() noexcept {
  block_.control().generation.wake();  // not raised, which would let the barrier pass
  for (int rank = 0; rank < size(); ++rank) {
    block_.state(rank).bell.raise();
    block_.state(rank).posted.wake();
  }
}

void Communicator::leave() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(left_, true)) return;
    if (!abort_reason_) abort_reason_ = "the process group was shut down";
  }
  block_.state(rank_).left.store(1, std::memory_order_release);
  wake_all();
}

void Communicator::abort(const std::string& reason) noexcept {
  bool announce = false;
  {
    std::lock_guard lock(mutex_);
    announce = !left_ && !abort_reason_;
    if (!abort_reason_) abort_reason_ = reason;
  }
  if (!announce) return;
  Control& control = block_.control();
  uint32_t none = 0;
  if (control.abort_state.compare_exchange_strong(none, 1)) {
    control.abort_rank = rank_;
    std::strncpy(control.abort_reason, reason.c_str(), kReasonBytes - 1);
    control.abort_state.store(2, std::memory_order_release);
  }
  wake_all();
}

bool Communicator::aborted() const {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) return true;
  }
  return block_.control().abort_state.load(std::memory_order_acquire) != 0;
}

void Communicator::check_usable() const {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
  }
  const Control& control = block_.control();
  const uint32_t state = control.abort_state.load(std::memory_order_acquire);
  if (state == 0) return;
  if (state == 1) throw EngineError(Kind::kRemote, "a peer gave up");
  std::string reason(control.abort_reason, strnlen(control.abort_reason, kReasonBytes));
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  throw EngineError(Kind::kRemote, fmt::format("rank {} gave up: {}", control.abort_rank, reason));
}

}  // namespace cann::hccl
