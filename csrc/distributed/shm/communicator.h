#pragma once
// What the operations of a shared-memory communicator have in common: barriers, blocking waits that notice peers which
// die, leave or give up, and the end of the communicator.
//
// No thread watches: whoever waits looks every 50 ms whether the ranks it waits for live, and a rank that waits for
// nobody does not need to know. The user can interrupt such a wait. meet() belongs to one thread at a time; the rest is
// thread-safe.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "distributed/engine.h"
#include "distributed/shm/control_block.h"
#include "distributed/shm/peer_process.h"
#include "sim/hbm.h"

namespace cann::hccl {

class Communicator {
 public:
  // `peers` by rank, the own entry unused. `control` must outlive this: `owner` keeps it alive. `hbm` is this
  // process's, or nullptr: then all contents are copied.
  Communicator(ControlBlock block, std::shared_ptr<void> owner, int rank,
               std::vector<std::shared_ptr<PeerProcess>> peers, sim::Hbm* hbm);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const ControlBlock& block() const { return block_; }

  // Returns once every rank has come. Raises EngineError naming the ranks at fault.
  void meet(const Call& call);

  // Whether `rank` waits for this one to meet it.
  bool is_ahead(int rank) const;

  // Blocks until `done()`, which is asked again whenever `signal` is raised. Until then the ranks for which `missing()`
  // holds are those waited for: with `any` it suffices that one of them lives. Raises EngineError.
  void wait(const Call& call, Signal& signal, const std::function<bool()>& done,
            const std::function<bool(int)>& missing, bool any = false);

  // The place of [data, data + bytes) in this process's shared HBM.
  std::optional<uint64_t> hbm_offset(const Span& span) const;
  // A range of a rank's shared HBM, own or a peer's. Raises kRemote when the rank has no such range.
  std::byte* hbm(int rank, uint64_t offset, uint64_t bytes) const;

  // Takes part no more; peers that wait for this rank fail.
  void leave() noexcept;
  void abort(const std::string& reason) noexcept;
  bool aborted() const;
  // Raises kAborted, or kRemote when it was a peer that gave up, if the communicator has ended.
  void check_usable() const;

  // Runs `body`; if it raises, the communicator ends for this rank and its peers.
  template <typename Body>
  void or_abort(Body&& body) {
    try {
      check_usable();
      body();
    } catch (const EngineError& error) {
      abort(error.what());
      throw;
    } catch (...) {
      abort("it was interrupted");
      throw;
    }
  }

 private:
  void wake_all() noexcept;
  // Raises if a rank that is missing will never come.
  void check_peers(const std::function<bool(int)>& missing, bool any) const;
  std::string list_missing(const std::function<bool(int)>& missing) const;

  const ControlBlock block_;
  const std::shared_ptr<void> owner_;
  const int rank_;
  const std::vector<std::shared_ptr<PeerProcess>> peers_;
  sim::Hbm* const hbm_;
  uint32_t step_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::optional<std::string> abort_reason_;
  bool left_ = false;
};

}  // namespace cann::hccl
