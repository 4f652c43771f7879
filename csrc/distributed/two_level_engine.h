#pragma once
// Ranks of several hosts, equally many on each: shared memory inside a host, messages between hosts.
//
// Rank l of a host's ranks and the ranks in its place on the other hosts form a rail; the L rails work side by side.
// Bytes that leave a host of L ranks, for H hosts, n = L H ranks and a tensor of S bytes, against those of MeshEngine:
//   all_reduce   2 S (H-1)/H instead of 2 S L (n-L)/n: reduce-scatter inside the host, all_reduce of S/L on each rail,
//                all-gather inside
//   broadcast    (H-1) S instead of (n-L) S, from the root's host: the root to its rail, then inside each host
//   all_gather   L (H-1) S instead of L (n-L) S, with S the input: along the rails, then inside
//   barrier      inside, along the rails, inside
// Everything else, and small tensors, whose cost is the number of steps, go through one mesh of all ranks. Sums are
// taken in rank order inside a host and in host order between hosts: bitwise equal on all ranks and run to run; 16-bit
// types are rounded once inside and once between.

#include <memory>
#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

class TwoLevelEngine final : public Engine {
 public:
  // Where each rank of the group is: hosts[h][l] is a rank, all hosts having the same number of them.
  using Hosts = std::vector<std::vector<int>>;
  // `local` has this rank's host's ranks in that order, `rail` its rail's in host order, `all` everybody.
  TwoLevelEngine(Hosts hosts, int rank, std::shared_ptr<Engine> local, std::shared_ptr<Engine> rail,
                 std::shared_ptr<Engine> all);

  void all_reduce(const Call& call, Span data) override;
  void reduce(const Call& call, Span data) override { all_->reduce(call, data); }
  void broadcast(const Call& call, Span data) override;
  void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) override {
    all_->reduce_scatter(call, inputs, output);
  }
  void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) override {
    all_->all_to_all(call, inputs, outputs);
  }
  void gather(const Call& call, Span input, const std::vector<Span>& outputs) override {
    all_->gather(call, input, outputs);
  }
  void scatter(const Call& call, const std::vector<Span>& inputs, Span output) override {
    all_->scatter(call, inputs, output);
  }
  void barrier(const Call& call) override;
  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag) override {
    return all_->send(call, data, peer, tag);
  }
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag) override {
    return all_->recv(call, data, peer, tag);
  }
  void leave(const Deadline& deadline) noexcept override;
  void abort(const std::string& reason) noexcept override;
  bool aborted() const override { return all_->aborted() || rail_->aborted() || local_->aborted(); }

 private:
  // Runs `body`; if it raises, all three communicators end.
  template <typename Body>
  void or_abort(Body&& body);

  const Hosts hosts_;
  size_t host_ = 0;    // of this rank
  size_t place_ = 0;   // of this rank on its host
  std::string parts_;  // for messages
  const std::shared_ptr<Engine> local_;
  const std::shared_ptr<Engine> rail_;
  const std::shared_ptr<Engine> all_;
};

}  // namespace cann::hccl
