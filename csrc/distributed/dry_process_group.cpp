#include "distributed/dry_process_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "distributed/checks.h"
#include "distributed/collective_kind.h"
#include "distributed/hccl_env.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/errors.h"
#include "runtime/host_alias.h"
#include "runtime/simulator.h"

namespace cann::hccl {
namespace {

using c10d::OpType;
using sim::Collective;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kGroupItself = -1;

struct Registry {
  std::mutex mutex;
  std::vector<DryGroup> groups;
};
Registry& registry() {
  static auto* const made = new Registry();
  return *made;
}

uint32_t add_group(const DryGroup& group) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.groups.push_back(group);
  return static_cast<uint32_t>(r.groups.size() - 1);
}

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

// Finished from the start; wait() makes the current stream (after a barrier: the host) wait in virtual time.
class DryWork final : public c10d::Work {
 public:
  DryWork(int rank, OpType op, std::vector<uint32_t> events, std::vector<at::Tensor> outputs, c10::Device device,
          bool blocks_host, DryReceipts receipts)
      : Work(rank, op),
        events_(std::move(events)),
        receipts_(std::move(receipts)),
        outputs_(std::move(outputs)),
        device_(device),
        blocks_host_(blocks_host),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            device.is_cpu() ? std::vector<c10::Device>{} : std::vector<c10::Device>{device})) {
    future_->markCompleted(outputs_);
    finish();
  }

  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    collect();
    if (!simulator::on() || device_.is_cpu()) return;
    for (const uint32_t event : events_) {
      simulator::timeline().wait(simulator::current_stream_index(device_.index()), event);
      if (blocks_host_) simulator::timeline().host_wait(event);
    }
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  // Who asks for the future waits on that and not on this.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    collect();
    return future_;
  }

 private:
  void collect() {
    for (const auto& receipt : receipts_) receipt->collect();
  }

  std::vector<uint32_t> events_;
  DryReceipts receipts_;
  std::vector<at::Tensor> outputs_;
  c10::Device device_;
  bool blocks_host_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Whether writing all of `tensors` leaves their storages with known values only: they were known, or are covered whole.
bool can_be_written_with_known(const std::vector<at::Tensor>& tensors) {
  std::map<const void*, std::pair<size_t, size_t>> covered;  // storage -> its bytes, those written
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().type() != kNPU || can_become_known(tensor)) continue;
    const c10::Storage& storage = tensor.storage();
    if (storage.nbytes() > kKnownBytes) return false;
    auto& [size, written] = covered[storage.unsafeGetStorageImpl()];
    size = storage.nbytes();
    written += tensor.nbytes();
  }
  return std::ranges::all_of(covered, [](const auto& entry) { return entry.second.second >= entry.second.first; });
}

c10::Device device_of(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  if (!outputs.empty()) return outputs[0].device();
  return inputs.empty() ? c10::Device(kNPU, current_device()) : inputs[0].device();
}

}  // namespace

std::vector<DryGroup> dry_groups() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.groups;
}

DryProcessGroup::DryProcessGroup(int rank, int size, std::string name, std::vector<int> global_ranks)
    : Backend(rank, size) {
  if (global_ranks.empty()) {
    global_ranks.resize(static_cast<size_t>(size));
    std::iota(global_ranks.begin(), global_ranks.end(), 0);
  }
  TORCH_CHECK_VALUE(global_ranks.size() == static_cast<size_t>(size), "a process group of ", size, " ranks needs ",
                    size, " global ranks, but got ", global_ranks.size());
  lazy_init();
  group_ = {.name = std::move(name), .ranks = std::move(global_ranks), .shape = {}};
  group_.shape = simulator::topology().shape_of(group_.ranks);
  index_ = add_group(group_);
  init();
}

int DryProcessGroup::global(int rank) const {
  const auto& told = options_->global_ranks_in_group;
  const auto i = static_cast<size_t>(rank);
  return i < told.size() ? static_cast<int>(told[i]) : group_.ranks[i];
}

// ---- running ------------------------------------------------------------------------------------------------------

void DryProcessGroup::charge_buffers(c10::Device device, int peer) {
  if (device.is_cpu()) return;
  const HcclEnv& env = HcclEnv::get();
  const bool pair = peer != kGroupItself && env.p2p_buffer_megabytes != 0;
  {
    const std::lock_guard lock(mutex_);
    if (!charged_.insert({device.index(), pair ? peer : kGroupItself}).second) return;
  }
  caching_allocator::add_external(
      device.index(), 2 * kMiB * (pair ? env.p2p_buffer_megabytes : env.buffer_megabytes),
      pair ? "HCCL point-to-point buffers (P2P_HCCL_BUFFSIZE)" : "HCCL communicator buffers (HCCL_BUFFSIZE)");
}

DryProcessGroup::WorkPtr DryProcessGroup::start(sim::Action action, OpType op, c10::Device device,
                                                const Tensors& outputs, const DryReceipts& receipts) {
  std::vector<uint32_t> events;
  if (simulator::on() && !device.is_cpu()) {
    action.stream = simulator::current_stream_index(device.index());
    action.what = index_;
    action.event = simulator::timeline().new_event();
    simulator::annotate(action, device.index());
    simulator::timeline().transfer(action);
    events.push_back(action.event);
  }
  const std::lock_guard lock(mutex_);
  ++sequence_;
  if (coalescing_) {
    coalesced_.insert(coalesced_.end(), events.begin(), events.end());
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
    coalesced_receipts_.insert(coalesced_receipts_.end(), receipts.begin(), receipts.end());
  }
  return c10::make_intrusive<DryWork>(getRank(), op, std::move(events), outputs, device, op == OpType::BARRIER,
                                      receipts);
}

DryProcessGroup::WorkPtr DryProcessGroup::run(OpType op, const Tensors& inputs, const Tensors& outputs, size_t bytes,
                                              const std::function<void()>& values, const DryReceipts& receipts) {
  const c10::Device device = device_of(inputs, outputs);
  charge_buffers(device, kGroupItself);
  const bool known =
      receipts.empty() && std::ranges::all_of(inputs, &values_known) && can_be_written_with_known(outputs);
  if (known) values();
  for (const at::Tensor& output : outputs) set_values_known(output, known);
  const Collective kind = collective_of(op);
  const double us = simulator::topology().collective_us(kind, static_cast<double>(bytes), group_.shape);
  return start({.kind = sim::Action::kCollective,
                .collective = kind,
                .us = static_cast<float>(us),
                .value = static_cast<int64_t>(bytes)},
               op, device, outputs, receipts);
}

DryProcessGroup::WorkPtr DryProcessGroup::transfer(OpType op, const Tensors& tensors, int peer) {
  if (!tensors.at(0).is_cpu()) check_single(tensors);  // this class also stands for Gloo
  check_root(peer, getSize(), op == OpType::SEND ? "send" : "recv");
  const c10::Device device = tensors[0].device();
  charge_buffers(device, peer);
  if (op != OpType::SEND) set_values_known(tensors[0], false);
  const DryReceipts receipts = exchange(tensors[0], peer, op == OpType::SEND);
  const int ends[] = {global(getRank()), global(peer)};
  const double us = simulator::topology().collective_us(
      Collective::kPointToPoint, static_cast<double>(tensors[0].nbytes()), simulator::topology().shape_of(ends));
  return start({.kind = op == OpType::SEND ? sim::Action::kSend : sim::Action::kReceive,
                .collective = Collective::kPointToPoint,
                .us = static_cast<float>(us),
                .value = global(peer)},
               op, device, tensors, receipts);
}

DryReceipts DryProcessGroup::exchange(const at::Tensor& tensor, int peer, bool send) {
  if (dry_courier() == nullptr) return {};
  const int me = global(getRank()), other = global(peer);
  const std::pair ends = send ? std::pair(me, other) : std::pair(other, me);
  uint64_t number = 0;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !messages_.contains(ends);
    number = messages_[ends]++;
  }
  if (first) dry_courier()->meet(other);
  if (!is_carried(tensor)) return {};
  const std::string message = fmt::format("{}:{}>{}:{}", name(), ends.first, ends.second, number);
  if (!send) return {std::make_shared<DryReceipt>(tensor, other, message, /*shared=*/false)};
  dry_courier()->post(message, known_bytes(tensor), /*shared=*/false);
  return {};
}

DryReceipts DryProcessGroup::share_from(int root, const Tensors& tensors) {
  DryReceipts receipts;
  if (dry_courier() == nullptr) return receipts;
  for (const at::Tensor& tensor : tensors) {
    // Objects, sizes and seeds. Numbers with fractions are parameters as a rule: each owner broadcasts its own, and who
    // waited for their values would need every owner to run.
    if (!is_carried(tensor) || !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) continue;
    std::string message;
    {
      const std::lock_guard lock(mutex_);
      message = fmt::format("{}:{}:{}", name(), global(0), shared_++);
    }
    if (root == getRank()) {
      dry_courier()->post(message, known_bytes(tensor), /*shared=*/true);
    } else {
      receipts.push_back(std::make_shared<DryReceipt>(tensor, global(root), message, /*shared=*/true));
    }
  }
  return receipts;
}

void DryProcessGroup::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = true;
}

DryProcessGroup::WorkPtr DryProcessGroup::endCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = false;
  const c10::Device device = device_of({}, coalesced_outputs_);
  return c10::make_intrusive<DryWork>(getRank(), OpType::COALESCED, std::exchange(coalesced_, {}),
                                      std::exchange(coalesced_outputs_, {}), device, false,
                                      std::exchange(coalesced_receipts_, {}));
}

uint64_t DryProcessGroup::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

// ---- operations ---------------------------------------------------------------------------------------------------

// What a reduction gives when all ranks hold the same.
void DryProcessGroup::reduce_values(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* function) const {
  double factor = 1;
  const at::Tensor values = host_alias(tensor);
  switch (checked_reduction(op, tensor.scalar_type(), function, &factor)) {
    case Reduction::kSum:
      values.mul_(getSize());
      break;
    case Reduction::kPremultipliedSum:
      values.mul_(factor * getSize());
      break;
    case Reduction::kProduct:
      values.pow_(getSize());
      break;
    default:
      break;
  }
}

DryProcessGroup::WorkPtr DryProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_root(opts.rootRank, getSize(), "broadcast");
  const DryReceipts receipts = share_from(static_cast<int>(opts.rootRank), tensors);
  return run(
      OpType::BROADCAST, tensors, tensors, bytes_of(tensors), [] {}, receipts);
}

DryProcessGroup::WorkPtr DryProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return run(OpType::ALLREDUCE, tensors, tensors, bytes_of(tensors), [&] {
    for (const at::Tensor& tensor : tensors) reduce_values(tensor, opts.reduceOp, "allreduce");
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::allreduce_coalesced(Tensors& tensors,
                                                              const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

DryProcessGroup::WorkPtr DryProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_root(opts.rootRank, getSize(), "reduce");
  return run(OpType::REDUCE, tensors, tensors, bytes_of(tensors), [&] {
    for (const at::Tensor& tensor : tensors) reduce_values(tensor, opts.reduceOp, "reduce");
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::allgather(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions&) {
  Tensors all;
  for (const Tensors& list : outputs) all.insert(all.end(), list.begin(), list.end());
  const size_t bytes = bytes_of(inputs) * static_cast<size_t>(getSize());
  return run(OpType::ALLGATHER, inputs, all, bytes, [&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (const at::Tensor& output : outputs[i]) host_alias(output).copy_(host_alias(inputs[i]).view_as(output));
    }
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions&) {
  TORCH_CHECK(output.numel() == input.numel() * getSize(),
              "output tensor size must be equal to world_size times "
              "input tensor size: expected ",
              input.numel() * getSize(), " elements, but got ", output.numel(), ".",
              error_suffix(ErrModule::DIST, ErrCode::PARAM));
  return run(OpType::_ALLGATHER_BASE, {input}, {output}, output.nbytes(), [&] {
    host_alias(output).view({getSize(), -1}).copy_(host_alias(input).reshape({1, -1}).expand({getSize(), -1}));
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& opts) {
  return allgather(outputs, inputs, opts);
}

DryProcessGroup::WorkPtr DryProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::AllgatherOptions&) {
  return run(OpType::ALLGATHER, inputs, outputs, bytes_of(outputs), [&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      host_alias(outputs[i])
          .view({getSize(), -1})
          .copy_(host_alias(inputs[i]).reshape({1, -1}).expand({getSize(), -1}));
    }
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::gather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& opts) {
  check_root(opts.rootRank, getSize(), "gather");
  const Tensors all = outputs.empty() ? Tensors() : outputs[0];
  const size_t bytes = bytes_of(inputs) * static_cast<size_t>(getSize());
  return run(OpType::GATHER, inputs, all, bytes, [&] {
    for (const at::Tensor& output : all) host_alias(output).copy_(host_alias(inputs[0]));
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ScatterOptions& opts) {
  check_root(opts.rootRank, getSize(), "scatter");
  const bool root = opts.rootRank == getRank() && !inputs.empty();
  const Tensors all = root ? inputs[0] : Tensors();
  const size_t bytes = bytes_of(outputs) * static_cast<size_t>(getSize());
  auto work = run(OpType::SCATTER, all, outputs, bytes, [&] {
    if (root) host_alias(outputs[0]).copy_(host_alias(all[static_cast<size_t>(getRank())]));
  });
  if (!root) set_values_known(outputs[0], false);
  return work;
}

DryProcessGroup::WorkPtr DryProcessGroup::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ReduceScatterOptions& opts) {
  const Tensors& parts = inputs.at(0);
  return run(OpType::REDUCE_SCATTER, parts, outputs, bytes_of(parts), [&] {
    host_alias(outputs[0]).copy_(host_alias(parts[static_cast<size_t>(getRank())]));
    reduce_values(outputs[0], opts.reduceOp, "reduce_scatter");
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(input.numel() == output.numel() * getSize(),
              "input tensor must be the same size as output size times "
              "world size: expected ",
              output.numel() * getSize(), " elements, but got ", input.numel(), ".",
              error_suffix(ErrModule::DIST, ErrCode::PARAM));
  return run(OpType::_REDUCE_SCATTER_BASE, {input}, {output}, input.nbytes(), [&] {
    host_alias(output).copy_(host_alias(input).reshape({getSize(), -1})[getRank()].view_as(output));
    reduce_values(output, opts.reduceOp, "reduce_scatter");
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                          const c10d::ReduceScatterOptions& opts) {
  return run(OpType::REDUCE_SCATTER, inputs, outputs, bytes_of(inputs), [&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      host_alias(outputs[i]).copy_(host_alias(inputs[i]).reshape({getSize(), -1})[getRank()].view_as(outputs[i]));
      reduce_values(outputs[i], opts.reduceOp, "reduce_scatter");
    }
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<int64_t>& output_splits,
                                                        std::vector<int64_t>& input_splits,
                                                        const c10d::AllToAllOptions&) {
  check_splits(output_splits, output, getSize());
  check_splits(input_splits, input, getSize());
  const bool even = output.sizes() == input.sizes();
  auto work = run(OpType::ALLTOALL_BASE, {input}, {output}, input.nbytes(), [&] {
    if (even) host_alias(output).copy_(host_alias(input));
  });
  if (!even) set_values_known(output, false);
  return work;
}

DryProcessGroup::WorkPtr DryProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  return run(OpType::ALLTOALL, inputs, outputs, bytes_of(inputs), [&] {
    for (size_t i = 0; i < outputs.size(); ++i) host_alias(outputs[i]).copy_(host_alias(inputs[i]).view_as(outputs[i]));
  });
}

DryProcessGroup::WorkPtr DryProcessGroup::send(Tensors& tensors, int peer, int /*tag*/) {
  return transfer(OpType::SEND, tensors, peer);
}

DryProcessGroup::WorkPtr DryProcessGroup::recv(Tensors& tensors, int peer, int /*tag*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(!tensors.at(0).is_cpu() || dry_courier() != nullptr,
                              "dry run: a CPU tensor received from rank ", global(peer),
                              " holds values that only that rank knows; run the script with npu-plan, or receive into "
                              "an npu tensor");
  return transfer(OpType::RECV, tensors, peer);
}

DryProcessGroup::WorkPtr DryProcessGroup::recvAnysource(Tensors&, int) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "dry run: recv() from any rank is not simulated, since which rank sends first is "
                              "not known; name the source");
}

DryProcessGroup::WorkPtr DryProcessGroup::barrier(const c10d::BarrierOptions&) {
  return run(OpType::BARRIER, {}, {}, 0, [] {});
}

}  // namespace cann::hccl
