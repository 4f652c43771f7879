#pragma once
// HCCL's collectives over messages (Transport) between all ranks of a group: the engine that is right everywhere.
//
// all_reduce, reduce_scatter, all_gather and broadcast take the algorithm that AlgorithmChoice says (algorithms.h has
// their steps and bytes), all_reduce of float32 a lossy one if the wire format says so (compressed_sum.h). The others
// are one round, in which every rank hears from every other one, so that ranks that disagree find out:
//   reduce           2 rounds: direct reduce_scatter, then S/n from each to the root; of two ranks 1, whole
//   all_to_all       what the splits say; gather and scatter: one side of it
// Point-to-point messages are not a Transport's business and come from `Transfers`.

#include <functional>
#include <memory>

#include "distributed/algorithm_choice.h"
#include "distributed/plan.h"
#include "distributed/wire_codec.h"

namespace cann::hccl {

// How the operations of a communicator between hosts are to be carried.
struct WireOptions {
  AlgorithmChoice algorithms;
  WireFormat format;
};

// Point-to-point transfers, as Engine's send and recv.
struct Transfers {
  using Post = std::function<std::unique_ptr<Transfer>(const Call& call, Span data, int peer, int tag)>;
  Post send;
  Post recv;
};

class MeshEngine final : public Engine {
 public:
  // `transport` belongs to this engine alone; without `transfers` there are none.
  MeshEngine(std::shared_ptr<Transport> transport, WireOptions options, Transfers transfers = {});

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
    return transfers_.send(call, data, peer, tag);
  }
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag) override {
    return transfers_.recv(call, data, peer, tag);
  }
  void leave(const Deadline& deadline) noexcept override;
  void abort(const std::string& reason) noexcept override { transport_->abort(reason); }
  bool aborted() const override { return transport_->aborted(); }

  // For engines that are made of others: plans to be run on transport(). They take memory from scratch(), which the
  // caller resets. `nominal` is the size by which the algorithm is chosen, and with it the number of steps.
  Plan plan_all_reduce(const Call& call, Span data, size_t nominal);
  Plan plan_reduce(const Call& call, Span data);
  Plan plan_reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output);
  Plan plan_all_gather(const Call& call, const std::vector<Span>& parts);
  Plan plan_broadcast(const Call& call, Span data);
  Scratch& scratch() { return scratch_; }
  Transport& transport() { return *transport_; }
  // Returns once every rank has come and is known to do `call`. Raises kMismatch.
  void agree(const Call& call);

 private:
  Messages to_all(Span data) const { return Messages(ranks(), data); }
  size_t ranks() const { return static_cast<size_t>(transport_->size()); }
  size_t me() const { return static_cast<size_t>(transport_->rank()); }
  Algorithm choose(MeshOperation operation, const Call& call, size_t bytes) const;
  // Runs the plan that `make` gives, with fresh scratch memory.
  template <typename Make>
  void run(const Call& call, Make&& make);
  void exchange(const Call& call, const Messages& outgoing, const Messages& incoming);

  const std::shared_ptr<Transport> transport_;
  const WireOptions options_;
  const Transfers transfers_;
  // Used by the collectives' thread only.
  Scratch scratch_;
  Residuals residuals_;
};

}  // namespace cann::hccl
