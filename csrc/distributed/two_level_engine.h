#pragma once
// Ranks of several hosts, equally many on each: shared memory inside a host, messages between hosts.
//
// Rank l of a host's ranks and the ranks in its place on the other hosts form a rail; the L rails work side by side.
// Bytes that leave a host of L ranks, for H hosts, n = L H ranks and a tensor of S bytes, against those of MeshEngine:
//   all_reduce       2 S (H-1)/H instead of 2 S L (n-L)/n: reduce-scatter inside the host, all_reduce of S/L on each
//                    rail, all-gather inside
//   reduce_scatter   S (H-1)/H instead of S L (n-L)/n: for every host a reduce-scatter inside this one, then a
//                    reduce-scatter along the rails
//   all_gather       L (H-1) S instead of L (n-L) S, with S the input: along the rails, then inside
//   broadcast        (H-1) S instead of (n-L) S, from the root's host: the root to its rail, then inside each host
//   all_to_all       the same, but what stays on the host goes through shared memory while the rest is on the wire
//   barrier          inside, along the rails, inside
// Everything else, and small tensors, whose cost is the number of steps, go through one mesh of all ranks. Large
// tensors are cut into chunks: while one is on the wire, others are reduced or copied inside the hosts.
//
// Every operation in two levels starts with a round of empty messages between all ranks, since ranks that disagree may
// otherwise wait for each other in different places. Sums are taken in rank order inside a host and in host order
// between hosts (see algorithms.h): bitwise equal on all ranks and run to run; 16-bit types are rounded once inside and
// once between.

#include <memory>
#include <vector>

#include "distributed/mesh_engine.h"

namespace cann::hccl {

class TwoLevelEngine final : public Engine {
 public:
  // Where each rank of the group is: hosts[h][l] is a rank, all hosts having the same number of them.
  using Hosts = std::vector<std::vector<int>>;
  // `local` has this rank's host's ranks in that order, `rail` its rail's in host order, `all` everybody.
  TwoLevelEngine(Hosts hosts, int rank, std::shared_ptr<Engine> local, std::shared_ptr<MeshEngine> rail,
                 std::shared_ptr<MeshEngine> all);

  void all_reduce(const Call& call, Span data) override;
  void reduce(const Call& call, Span data) override { all_->reduce(call, data); }
  void broadcast(const Call& call, Span data) override;
  void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) override;
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
  // Runs `body`; if it raises, all three communicators end. `where` comes before the message of an EngineError.
  template <typename Body>
  void or_abort(const std::string& where, Body&& body);
  void agree(const Call& call);
  // Runs plans on this rank's rail, see run_plans().
  void run_on_rail(const Call& call, size_t chunks, const std::function<Plan(size_t)>& make,
                   const std::function<void(size_t)>& done);
  // spans[r] of the ranks of a host, or of this rank's rail.
  std::vector<Span> of_host(size_t host, const std::vector<Span>& spans) const;
  std::vector<Span> of_rail(const std::vector<Span>& spans) const;
  // The two halves of a reduction in two levels.
  Call inside(const Call& call) const;
  Call between(const Call& call) const;

  const Hosts hosts_;
  size_t host_ = 0;    // of this rank
  size_t place_ = 0;   // of this rank on its host
  std::string parts_;  // for messages: which ranks the parts of this engine connect
  const std::shared_ptr<Engine> local_;
  const std::shared_ptr<MeshEngine> rail_;
  const std::shared_ptr<MeshEngine> all_;
};

}  // namespace cann::hccl
