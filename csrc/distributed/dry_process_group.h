#pragma once
// The process group of a dry run: one rank of any world size, with nobody else there.
//
// Collectives move no bytes; they take device time on the group's own stream, start when this rank arrives, and are
// kept by the simulator so that replay() can make them wait for late ranks. Peers are taken to hold what this rank
// holds: where an input's values are known (see dry_run.h), so are the outputs, and all others are unknown. That is the
// same assumption as running one rank for many, and what a mirror check of a second rank tests. Received values are
// unknown. Checks arguments as ProcessGroupHCCL does, and counts the communicator's buffers against the card. All
// functions are thread-safe.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "distributed/dry_exchange.h"
#include "sim/timeline.h"
#include "sim/topology.h"

namespace cann::hccl {

// Groups in the order they were made; an index is what a collective's sim::Action refers to.
struct DryGroup {
  std::string name;  // equal on all members
  std::vector<int> ranks;
  sim::GroupShape shape;
};
std::vector<DryGroup> dry_groups();

class DryProcessGroup final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `global_ranks[i]` is the global rank of member i; empty means 0 to size - 1, until
  // options() says otherwise, which is how Gloo's groups are told.
  DryProcessGroup(int rank, int size, std::string name, std::vector<int> global_ranks);

  const std::string getBackendName() const override { return "hccl"; }
  // Name and members of a group that was made without them, for the messages of its members.
  const c10::intrusive_ptr<Options>& options() const { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override {}

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

 private:
  // Starts an operation of `bytes` and gives its work. If all of `inputs` are known, `values` computes the outputs from
  // them on the host, unless what they hold is told by other ranks (`receipts`).
  WorkPtr run(c10d::OpType op, const Tensors& inputs, const Tensors& outputs, size_t bytes,
              const std::function<void()>& values, const DryReceipts& receipts = {});
  WorkPtr transfer(c10d::OpType op, const Tensors& tensors, int peer);
  WorkPtr start(sim::Action action, c10d::OpType op, c10::Device device, const Tensors& outputs,
                const DryReceipts& receipts);
  // Tells `peer` what is in `tensor`, or expects to be told.
  DryReceipts exchange(const at::Tensor& tensor, int peer, bool send);
  // The root publishes what is in those of `tensors` that hold whole numbers; others expect it.
  DryReceipts share_from(int root, const Tensors& tensors);
  void reduce_values(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* function) const;
  // Counts buffers of two times `megabytes` on the card, once per `peer` (-1: the group itself).
  void charge_buffers(c10::Device device, int peer);
  int global(int rank) const;
  std::string name() const { return group_.name + options_->group_name; }

  const c10::intrusive_ptr<Options> options_ = c10::make_intrusive<Options>("dry");
  DryGroup group_;
  uint32_t index_;
  std::mutex mutex_;  // guards what follows
  std::set<std::pair<int, int>> charged_;
  uint64_t sequence_ = 0;
  bool coalescing_ = false;
  std::vector<uint32_t> coalesced_;
  Tensors coalesced_outputs_;
  DryReceipts coalesced_receipts_;
  std::map<std::pair<int, int>, uint64_t> messages_;  // sender, receiver (global) -> how many were sent
  uint64_t shared_ = 0;                               // how many tensors roots have published
};

}  // namespace cann::hccl
