#pragma once
// ProcessGroupHCCL: torch.distributed's backend "hccl" for npu tensors.
//
// This class holds the semantics: it checks arguments before anything is sent, numbers the operations, keeps their
// order, and answers with WorkHCCL. The moving of bytes is an Engine's business (engine.h). Collectives of one group
// run one after another on one lane, as on HCCL's communication stream; an operation asked for with asyncOp = false
// runs on the calling thread when that lane is idle. Point-to-point operations are posted at once and finish on lanes
// of their own, one per peer, direction and tag, so peers may post them in any order; who waits for one at once
// finishes it on its own thread.
//
// The communicator's buffers (two of HCCL_BUFFSIZE MB, and two of P2P_HCCL_BUFFSIZE MB per peer) count against the
// card's HBM from the first operation until shutdown, abort or destruction. Engine and lanes live until destruction.
// All functions are thread-safe; ranks that call them in different orders get an error, see MeshEngine. Failures of an
// operation raise torch.distributed.DistBackendError from wait() and the future; refused arguments raise at the call.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "distributed/checks.h"
#include "distributed/engine.h"
#include "distributed/lanes.h"
#include "distributed/options.h"
#include "distributed/rendezvous.h"
#include "distributed/unseen_errors.h"
#include "distributed/virtual_time.h"
#include "distributed/work_hccl.h"

namespace cann::hccl {

class ProcessGroupHCCL final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using Options = hccl::Options;  // not the base's
  using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

  // Connects to the other ranks through `store`, as connect() does: all of them must call. `make_gloo` is kept for
  // groups made of this one. `options` is kept, not copied.
  ProcessGroupHCCL(const c10::intrusive_ptr<c10d::Store>& store, GlooMaker make_gloo, int rank, int size,
                   c10::intrusive_ptr<Options> options);
  // The same, known to close_all().
  static c10::intrusive_ptr<ProcessGroupHCCL> make(const c10::intrusive_ptr<c10d::Store>& store, GlooMaker make_gloo,
                                                   int rank, int size, c10::intrusive_ptr<Options> options);
  // Fails what is pending and waits for the lanes.
  ~ProcessGroupHCCL() override;

  // What the destructor does, for every group of make() that is still alive. To be called before the interpreter goes:
  // a lane that then drops the last reference to a tensor would ask for an interpreter lock that ends its thread.
  static void close_all() noexcept;

  const std::string getBackendName() const override { return "hccl"; }
  OptionsPtr getBackendOptions() override { return options_; }
  const c10::intrusive_ptr<Options>& options() const { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }

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
  // Over the store, so that the group stays usable: rank 0 raises DistBackendError naming the ranks (the first one, or
  // with `wait_all_ranks` all) that did not come in time, the others raise too.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // As _allgather_base and _reduce_scatter_base with parts of different sizes along dimension 0; empty splits are even.
  WorkPtr all_gather_into_tensor_uneven(at::Tensor& output, at::Tensor& input, std::vector<int64_t> output_splits,
                                        const c10d::AllgatherOptions& opts);
  WorkPtr reduce_scatter_tensor_uneven(at::Tensor& output, at::Tensor& input, std::vector<int64_t> input_splits,
                                       const c10d::ReduceScatterOptions& opts);
  // ops[i] is "isend" or "irecv". One work for all.
  WorkPtr batch_isend_irecv(const std::vector<std::string>& ops, Tensors& tensors, const std::vector<int64_t>& ranks);

  bool supportsCoalescing() const override { return true; }
  // Operations between the two start at once; endCoalescing() gives one work that covers them all.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  bool supportsSplitting() const override { return true; }
  // The group of `ranks` of this one, or nullptr if this rank is not among them. All of `ranks` must call.
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const OptionsPtr& opts) override;
  BackendPtr merge(const c10::intrusive_ptr<c10d::Store>& store, const OptionsPtr& opts, const int& rank,
                   const int& size) override;
  void eagerConnectSingleDevice(at::Device device) override;

  // Every rank starts at 0, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override { lanes_.drain(); }
  // Times are always taken.
  void enableCollectivesTiming() override {}

  // Fails what is pending, here and on the peers; later operations raise.
  void abort() override;
  void abort(const std::string& reason);
  // Waits for what is pending (each operation has its timeout), then leaves together with the peers: a few seconds at
  // most if they do not. Idempotent.
  void shutdown() override;
  // Replaces a communicator that abort() or a failure has ended. All ranks must do it, with a store of its own.
  void rebuild(const c10::intrusive_ptr<c10d::Store>& store);
  // How often that has happened.
  int64_t rebuilds() const;

  // Name of the communicator, equal on all ranks; "" before the first operation unless `init`, which makes it now.
  // Raises RuntimeError for a negative rank.
  std::string communicator_name(int64_t rank, bool init);
  // 1 to 127 characters, once. Raises RuntimeError.
  void set_communicator_name(const std::string& name);
  // A number that identifies the communicator in this process.
  int64_t communicator_handle(int64_t rank);

 private:
  struct Request;
  using Body = std::function<int(Engine&, const Call&)>;

  WorkPtr launch(Request request, Body body);
  WorkPtr transfer(Request request, int peer, int tag);
  c10::intrusive_ptr<WorkHCCL> make_work(const Request& request, Call& call, int peer);
  // Stands for the stream that operations on `device` run on.
  c10::Stream communication_stream(c10::Device device);
  // With the device's clock on: this rank's side of an operation about to start, with which `work` ends; else nothing.
  std::optional<VirtualTime::Arrival> arrive(const Request& request, WorkHCCL& work, int peer = -1);
  // Tells the stream sanitizer what an operation about to start reads and writes, and `work` where that belongs.
  void report_to_sanitizer(const Request& request, WorkHCCL& work);
  std::chrono::milliseconds timeout_for(std::chrono::milliseconds asked) const;
  Call reduction_call(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* function) const;
  std::shared_ptr<Engine> engine() const;
  // Counts the communicator's buffers against the card, once. Raises OutOfMemoryError.
  void ensure_communicator(c10::Device device);
  void ensure_pair_communicator(c10::Device device, int peer);
  void release_buffers() noexcept;
  // Ends the communicator, when all is well only once the peers have had what was sent to them.
  void leave(std::chrono::milliseconds patience) noexcept;
  void close() noexcept;
  std::string group_label() const;
  // Makes the torch group that holds this backend use it as its default one, if it has none.
  void become_default_of_group() const;

  c10::intrusive_ptr<c10d::Store> store_;  // this connection's own part
  c10::intrusive_ptr<Options> options_;
  const GlooMaker make_gloo_;
  const std::shared_ptr<UnseenErrors> unseen_ = std::make_shared<UnseenErrors>(HcclEnv::get().error_handling);
  Lanes lanes_;

  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Engine> engine_;
  uint64_t sequence_ = 0;
  uint64_t p2p_sequence_ = 0;
  uint64_t monitored_barriers_ = 0;
  int64_t rebuilds_ = 0;
  std::optional<std::vector<c10::intrusive_ptr<WorkHCCL>>> coalescing_;
  std::string communicator_name_;
  bool communicator_made_ = false;
  std::once_flag first_operation_;
  std::optional<c10::Device> last_device_;
  std::optional<c10::Stream> communication_stream_;
  std::shared_ptr<VirtualTime> virtual_time_;
  std::set<std::pair<c10::DeviceIndex, int>> communicators_;  // card and peer; peer -1 is the group's own
  std::map<c10::DeviceIndex, size_t> buffer_bytes_;
};

}  // namespace cann::hccl
