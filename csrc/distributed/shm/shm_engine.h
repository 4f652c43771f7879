#pragma once
// The engine for ranks of one host: collectives and messages over shared memory.

#include "distributed/shm/collectives.h"
#include "distributed/shm/mailboxes.h"

namespace cann::hccl {

class ShmEngine final : public Engine {
 public:
  // As Communicator.
  ShmEngine(ControlBlock block, std::shared_ptr<void> owner, int rank, std::vector<std::shared_ptr<PeerProcess>> peers,
            sim::Hbm* hbm);

  void all_reduce(const Call& call, Span data) override;
  void reduce(const Call& call, Span data) override;
  void broadcast(const Call& call, Span data) override;
  void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) override;
  void gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void barrier(const Call& call) override;
  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag) override;
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag) override;
  // Does not wait: what was sent stays readable for as long as the peers hold the memory.
  void leave(const Deadline& deadline) noexcept override;
  void abort(const std::string& reason) noexcept override { communicator_.abort(reason); }
  bool aborted() const override { return communicator_.aborted(); }

 private:
  using Wants = std::vector<Collectives::Want>;
  void exchange(const Call& call, const std::vector<Span>& contribution, const Wants& wants, uint64_t bytes = 0);
  size_t me() const { return static_cast<size_t>(communicator_.rank()); }
  // Part `index` of every rank's contribution into places[rank].
  static Wants from_all(const std::vector<Span>& places, size_t index);

  Communicator communicator_;
  Collectives collectives_;
  Mailboxes mailboxes_;
};

}  // namespace cann::hccl
