#pragma once
// Ranks of several hosts: shared memory inside a host, messages between hosts.
//
// What goes between hosts is shared out among the L rails (host_map.h), which work side by side; L is what the host
// with the fewest ranks has. Bytes that leave a host of l ranks, for H hosts, n ranks in all and a tensor of S bytes,
// against those of MeshEngine:
//   all_reduce       2 S (H-1)/H instead of 2 S l (n-l)/n: reduce-scatter among the host's carriers, all_reduce of S/L
//                    on each rail, all-gather inside
//   reduce           S from every host but the root's instead of S l (n-l+1)/n: as all_reduce, but along the rails
//                    to the root's host, and there to the root
//   reduce_scatter   S (n-l)/n instead of S l (n-l)/n: for every host a reduce-scatter inside this one, then a
//                    reduce-scatter along the rails
//   all_gather       l (H-1) S instead of l (n-l) S, with S the input: inside the host, along the rails, then inside
//   broadcast        (H-1) S instead of (n-l) S, from the root's host: the root to its rail, then inside each host
//   all_to_all, gather, scatter
//                    the same, since every byte is for one rank only; but what stays on the host goes through shared
//                    memory while the rest is on the wire
//   barrier          inside, along the rails, inside
// Transfers, and small tensors, whose cost is the number of steps, go through one mesh of all ranks. Large tensors are
// cut into chunks: while some are on the wire, others are reduced or copied inside the hosts.
//
// Every operation in two levels starts with a round of empty messages between all ranks, since ranks that disagree may
// otherwise wait for each other in different places. Sums are taken in rank order inside a host and in host order
// between hosts (see algorithms.h): bitwise equal on all ranks and run to run; 16-bit types are rounded once inside and
// once between.

#include <memory>
#include <vector>

#include "distributed/host_map.h"
#include "distributed/mesh_engine.h"

namespace cann::hccl {

class TwoLevelEngine final : public Engine {
 public:
  // `local` connects this rank's host's ranks by place, `rail` one rank of every host, `all` everybody. A rank that is
  // on no rail has an idle one (idle_transport.h).
  TwoLevelEngine(HostMap map, std::shared_ptr<Engine> local, std::shared_ptr<MeshEngine> rail,
                 std::shared_ptr<MeshEngine> all);

  void all_reduce(const Call& call, Span data) override;
  void reduce(const Call& call, Span data) override;
  void broadcast(const Call& call, Span data) override;
  void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) override;
  void gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
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
  // The two halves of a reduction in two levels.
  Call inside(const Call& call) const;
  Call between(const Call& call) const;
  // `chunk` shared out among this host's carriers, by place; the others have nothing.
  std::vector<Span> for_carriers(Span chunk, size_t item) const;
  // Of a reduce_scatter: a carrier of this host gives what it `carried` in a later wave to the rank whose `output` it
  // is.
  void hand_on(const Call& call, size_t wave, Span carried, Span output);
  // A round among all ranks, and meanwhile `body` inside the host.
  template <typename Body>
  void beside_a_round(const Call& call, const Messages& outgoing, const Messages& incoming, Body&& body);
  // gather (`to_root`) and scatter: `mine` is this rank's part, `parts` everybody's, at the root only. On the root's
  // host body(call, parts) moves what stays there; its call has the root by place, and so has its parts.
  template <typename Body>
  void with_root(const Call& call, bool to_root, Span mine, const std::vector<Span>& parts, Body&& body);
  // Messages for other hosts' ranks, empty ones for this host's.
  Messages from_elsewhere(const std::vector<Span>& spans) const;

  const HostMap map_;
  const std::string parts_;  // for messages: which ranks the parts of this engine connect
  const std::shared_ptr<Engine> local_;
  const std::shared_ptr<MeshEngine> rail_;
  const std::shared_ptr<MeshEngine> all_;
};

}  // namespace cann::hccl
