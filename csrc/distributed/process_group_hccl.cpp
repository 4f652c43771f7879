#include "distributed/process_group_hccl.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "distributed/flight_recorder.h"
#include "distributed/hccl_env.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/host_alias.h"
#include "runtime/sanitizer.h"
#include "runtime/stream.h"

namespace cann::hccl {
namespace {

using c10d::OpType;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kGroupItself = -1;
// How long to wait for peers that have not left yet. Only ranks that leave one by one ever wait so long.
constexpr std::chrono::seconds kPatienceAtShutdown(5);
constexpr std::chrono::seconds kPatienceAtExit(1);
constexpr Lanes::Key kCollectiveLane = 0;

// One lane per peer, direction and tag: within these, transfers finish in the order they were posted.
Lanes::Key transfer_lane(OpType op, int peer, int tag) {
  const auto direction = op == OpType::SEND ? Lanes::Key{1} : Lanes::Key{2};
  return (direction << 62) | (static_cast<Lanes::Key>(peer + 1) << 31) | static_cast<Lanes::Key>(tag);
}

std::string suffix(ErrCode code) { return error_suffix(ErrModule::DIST, code); }

// The host's view of npu tensors, and what keeps it valid.
struct HostMemory {
  explicit HostMemory(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      aliases.push_back(host_alias(tensor));
      const at::Tensor& alias = aliases.back();
      spans.push_back({static_cast<std::byte*>(alias.data_ptr()), alias.nbytes()});
    }
  }
  std::vector<at::Tensor> aliases;
  std::vector<Span> spans;
};

// Consecutive pieces of `whole`, piece i having pieces[i] rows of `row_bytes`.
std::vector<Span> cut(Span whole, const std::vector<int64_t>& pieces, size_t row_bytes) {
  std::vector<Span> result;
  size_t offset = 0;
  for (const int64_t rows : pieces) {
    const size_t bytes = static_cast<size_t>(rows) * row_bytes;
    result.push_back({whole.data + offset, bytes});
    offset += bytes;
  }
  return result;
}

// `splits` along dimension 0 of `tensor`, with an empty list written out as even ones; and the bytes of a row.
std::pair<std::vector<int64_t>, size_t> rows_of(std::vector<int64_t> splits, const at::Tensor& tensor, int ranks) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) splits.assign(static_cast<size_t>(ranks), rows / ranks);
  return {std::move(splits), rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows)};
}

std::vector<int64_t> even(int64_t elements, int ranks) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), elements / ranks);
}

// The one list that an operation on a single card has.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int ranks) {
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(ranks),
              "Tensor list must hold one tensor per rank: expected one list of ", ranks, ", but got ", lists.size(),
              lists.empty() ? c10::str(" lists.") : c10::str(" list(s), the first with ", lists[0].size(), "."),
              suffix(ErrCode::PARAM));
  return lists[0];
}

}  // namespace

// An operation that has passed its checks.
struct ProcessGroupHCCL::Request {
  OpType op;
  const char* title;
  Tensors inputs;
  Tensors outputs;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
  Call call;
  c10::Device device = outputs.empty() ? inputs.at(0).device() : outputs[0].device();
};

namespace {

// DataType is numbered as c10::ScalarType, op_name() as c10d::OpType; both without including them.
static_assert(static_cast<int>(DataType::kUInt8) == static_cast<int>(at::kByte) &&
              static_cast<int>(DataType::kInt8) == static_cast<int>(at::kChar) &&
              static_cast<int>(DataType::kInt16) == static_cast<int>(at::kShort) &&
              static_cast<int>(DataType::kInt32) == static_cast<int>(at::kInt) &&
              static_cast<int>(DataType::kInt64) == static_cast<int>(at::kLong) &&
              static_cast<int>(DataType::kHalf) == static_cast<int>(at::kHalf) &&
              static_cast<int>(DataType::kFloat) == static_cast<int>(at::kFloat) &&
              static_cast<int>(DataType::kDouble) == static_cast<int>(at::kDouble) &&
              static_cast<int>(DataType::kUInt64) == static_cast<int>(at::kUInt64) &&
              static_cast<int>(DataType::kBool) == static_cast<int>(at::kBool) &&
              static_cast<int>(DataType::kBFloat16) == static_cast<int>(at::kBFloat16));
static_assert(static_cast<int>(OpType::SEND) == 12 && static_cast<int>(OpType::RECVANYSOURCE) == 14 &&
              static_cast<int>(OpType::_ALLREDUCE_SPARSE) == 18);

Call call_for(const at::Tensor& tensor, int64_t root = -1) {
  Call call;
  call.dtype = static_cast<DataType>(tensor.scalar_type());
  call.layout = layout_of(tensor);
  call.root = static_cast<int>(root);
  return call;
}

}  // namespace

ProcessGroupHCCL::ProcessGroupHCCL(c10::intrusive_ptr<c10d::Store> store, GlooMaker make_gloo, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)),
      make_gloo_(std::move(make_gloo)),
      engine_(connect(store_, rank, size, options_->timeout, make_gloo_, options_->wire_options())) {
  init();
}

ProcessGroupHCCL::~ProcessGroupHCCL() { close(); }

void ProcessGroupHCCL::close() noexcept {
  unseen_->seen();  // who ends the group does not want to be ended by it
  leave(kPatienceAtExit);
  lanes_.close();
}

namespace {

// The groups of make(), for close_all().
struct Groups {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<ProcessGroupHCCL>> alive;
};

Groups& groups() {
  static auto* const made = new Groups();  // outlives groups that are destroyed at exit
  return *made;
}

}  // namespace

c10::intrusive_ptr<ProcessGroupHCCL> ProcessGroupHCCL::make(c10::intrusive_ptr<c10d::Store> store, GlooMaker make_gloo,
                                                            int rank, int size, c10::intrusive_ptr<Options> options) {
  auto group =
      c10::make_intrusive<ProcessGroupHCCL>(std::move(store), std::move(make_gloo), rank, size, std::move(options));
  std::lock_guard lock(groups().mutex);
  std::erase_if(groups().alive, [](const auto& known) { return known.expired(); });
  groups().alive.emplace_back(group);
  return group;
}

void ProcessGroupHCCL::close_all() noexcept {
  std::vector<c10::weak_intrusive_ptr<ProcessGroupHCCL>> all;
  {
    std::lock_guard lock(groups().mutex);
    all.swap(groups().alive);
  }
  for (const auto& known : all) {
    if (const auto group = known.lock()) group->close();
  }
}

// ---- launching ----------------------------------------------------------------------------------------------------

std::shared_ptr<Engine> ProcessGroupHCCL::engine() const {
  std::lock_guard lock(mutex_);
  return engine_;
}

std::string ProcessGroupHCCL::group_label() const {
  if (!options_->group_name.empty()) return options_->group_name;
  return options_->group_id.empty() ? getGroupUid() : options_->group_id;
}

void ProcessGroupHCCL::become_default_of_group() const {
  // init_process_group() without a backend takes the one registered for the card, but PyTorch 2.13 then notes "nccl" or
  // "gloo" as the default of the group, whatever was taken; DistributedDataParallel, for one, asks for the default.
  using BackendType = c10d::ProcessGroup::BackendType;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  try {
    group = c10d::resolve_process_group(getGroupUid());
  } catch (const c10::Error&) {
    return;  // used on its own, without a group of torch.distributed
  }
  const auto devices = group->getDeviceTypes();
  const bool only_npu = devices.size() == 1 && devices[0].type() == kNPU;
  if (only_npu && group->getBackendType() == BackendType::GLOO) group->setDefaultBackend(BackendType::CUSTOM);
}

std::chrono::milliseconds ProcessGroupHCCL::timeout_for(std::chrono::milliseconds asked) const {
  if (asked.count() > 0) return asked;
  auto timeout = std::min(options_->timeout, options_->op_timeout);
  const auto& exec = HcclEnv::get().exec_timeout;
  if (exec && exec->count() > 0) timeout = std::min(timeout, std::chrono::milliseconds(*exec));
  return timeout;
}

c10::intrusive_ptr<WorkHCCL> ProcessGroupHCCL::make_work(const Request& request, Call& call) {
  std::call_once(first_operation_, [this] { become_default_of_group(); });
  const bool p2p = c10d::isP2POp(request.op);
  WorkHCCL::Info info{request.op, request.title, rank_, group_label(), 0, timeout_for(request.timeout), unseen_};
  std::lock_guard lock(mutex_);
  info.sequence = p2p ? ++p2p_sequence_ : ++sequence_;
  call.sequence = info.sequence;
  call.op = static_cast<uint8_t>(request.op);
  last_device_ = request.device;
  auto work = c10::make_intrusive<WorkHCCL>(std::move(info), request.inputs, request.outputs, request.device);
  if (onCompletionHook_) {
    work->on_finished([hook = onCompletionHook_](WorkHCCL& finished) { hook(finished.info()); });
  }
  if (FlightRecorder& recorder = FlightRecorder::get(); recorder.on()) {
    uint64_t bytes = 0;
    for (const at::Tensor& tensor : request.inputs.empty() ? request.outputs : request.inputs) bytes += tensor.nbytes();
    const uint64_t number = recorder.issued(group_label(), rank_, request.title, call.sequence, bytes);
    work->on_finished([&recorder, number](WorkHCCL& finished) { recorder.ended(number, finished.failure()); });
  }
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

void ProcessGroupHCCL::report_to_sanitizer(const Request& request, WorkHCCL& work) {
  if (request.device.is_cpu()) return;
  const c10::Stream stream = [&] {
    std::lock_guard lock(mutex_);
    if (!sanitizer_stream_ || sanitizer_stream_->device() != request.device) {
      sanitizer_stream_ = stream_from_pool(request.device.index(), /*priority=*/-1);
    }
    return *sanitizer_stream_;
  }();
  sanitizer::wait(stream, sanitizer::recorded(current_stream(request.device.index())));
  // The root of a broadcast keeps what it sends, all but the root of a reduction what they give.
  const bool root = request.call.root == rank_;
  const bool writes = request.op == OpType::BROADCAST ? !root : request.op != OpType::REDUCE || root;
  sanitizer::Launch operation(request.title, stream, /*stashed=*/true);
  for (const at::Tensor& input : request.inputs) operation.access(*input.unsafeGetTensorImpl(), /*write=*/false);
  for (const at::Tensor& output : request.outputs) operation.access(*output.unsafeGetTensorImpl(), writes);
  operation.check();
  work.runs_on(stream, sanitizer::recorded(stream));
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::launch(Request request, Body body) {
  ensure_communicator(request.device);
  Call call = request.call;
  auto work = make_work(request, call);
  if (sanitizer::on()) report_to_sanitizer(request, *work);
  auto task = [engine = engine(), work, call, timeout = timeout_for(request.timeout),
               body = std::move(body)]() mutable {
    call.deadline = Deadline(timeout);
    work->run([&] { return body(*engine, call); });
  };
  if (request.async) {
    lanes_.post(kCollectiveLane, std::move(task));
  } else {
    lanes_.run(kCollectiveLane, std::move(task));
  }
  return work;
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::transfer(Request request, int peer, int tag) {
  TORCH_CHECK(tag >= 0, "Tags must not be negative, but got ", tag, ".", suffix(ErrCode::VALUE));
  ensure_pair_communicator(request.device, peer);
  Call call = request.call;
  auto work = make_work(request, call);
  if (sanitizer::on()) report_to_sanitizer(request, *work);
  call.deadline = Deadline(timeout_for(request.timeout));
  const HostMemory memory(request.op == OpType::SEND ? request.inputs : request.outputs);
  // Posted here and now: the order of posting is what pairs transfers with those of the peer.
  std::shared_ptr<Transfer> posted;
  try {
    auto target = engine();
    auto transfer = request.op == OpType::SEND ? target->send(call, memory.spans[0], peer, tag)
                                               : target->recv(call, memory.spans[0], peer, tag);
    // The transfer goes first, then the memory and the engine it uses.
    posted = {transfer.release(), [target, memory](Transfer* done) { delete done; }};
  } catch (const EngineError& error) {
    work->run([&error]() -> int { throw error; });
    return work;
  }
  const bool ready = posted->ready();
  const Lanes::Key lane = transfer_lane(request.op, peer, tag);
  Lanes::Task finish = [work, posted = std::move(posted)] {
    work->run([&posted] {
      posted->wait();
      return posted->source();
    });
  };
  // A short message that lies in its place already is not worth two thread switches.
  if (!ready || !lanes_.try_run(lane, finish)) lanes_.post(lane, std::move(finish));
  return work;
}

Call ProcessGroupHCCL::reduction_call(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* function) const {
  Call call = call_for(tensor);
  call.reduction = checked_reduction(op, tensor.scalar_type(), function, &call.factor);
  return call;
}

// ---- collectives --------------------------------------------------------------------------------------------------

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_single(tensors);
  check_root(opts.rootRank, size_, "root");
  return launch({OpType::BROADCAST, "hccl:broadcast", tensors, tensors, opts.timeout, opts.asyncOp,
                 call_for(tensors[0], opts.rootRank)},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.broadcast(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_single(tensors);
  return launch({OpType::ALLREDUCE, "hccl:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, tensors[0], "allreduce")},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.all_reduce(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allreduce_coalesced(Tensors& tensors,
                                                                const c10d::AllreduceCoalescedOptions& opts) {
  check_list(tensors, /*same_size=*/false);
  return launch({OpType::ALLREDUCE_COALESCED, "hccl:all_reduce_coalesced", tensors, tensors, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, tensors[0], "allreduce_coalesced")},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  for (const Span& span : memory.spans) engine.all_reduce(call, span);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_single(tensors);
  check_root(opts.rootRank, size_, "root");
  Call call = reduction_call(opts.reduceOp, tensors[0], "reduce");
  call.root = static_cast<int>(opts.rootRank);
  return launch({OpType::REDUCE, "hccl:reduce", tensors, tensors, opts.timeout, opts.asyncOp, call},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.reduce(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_single(inputs);
  const Tensors& list = only_list(outputs, size_);
  check_list(list, /*same_size=*/false);
  check_same_numel(inputs[0], {list[static_cast<size_t>(rank_)]});
  return launch({OpType::ALLGATHER, "hccl:all_gather", inputs, list, opts.timeout, opts.asyncOp, call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(list)](Engine& engine, const Call& call) {
                  engine.all_gather(call, in.spans[0], out.spans);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "Expected as many outputs as inputs, but got ", outputs.size(), " and ",
              inputs.size(), ".", suffix(ErrCode::PARAM));
  check_list(inputs, /*same_size=*/false);
  check_list(outputs, /*same_size=*/false);
  check_matches(inputs[0], outputs[0]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_,
                "output tensor size must be equal to world_size times input tensor size, but got ", outputs[i].numel(),
                " and ", size_, " times ", inputs[i].numel(), ".", suffix(ErrCode::PARAM));
  }
  return launch({OpType::_ALLGATHER_BASE, "hccl:_all_gather_base", inputs, outputs, opts.timeout, opts.asyncOp,
                 call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(outputs), ranks = size_](Engine& engine, const Call& call) {
                  for (size_t i = 0; i < in.spans.size(); ++i) {
                    const auto bytes = static_cast<int64_t>(out.spans[i].bytes);
                    engine.all_gather(call, in.spans[i], cut(out.spans[i], even(bytes, ranks), 1));
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  check_list(inputs, /*same_size=*/false);
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "Tensor list must hold one list per rank: expected ", size_,
              ", but got ", outputs.size(), ".", suffix(ErrCode::PARAM));
  Tensors all;  // rank by rank
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(),
                "Every output list must have as many tensors as there are inputs: ", list.size(), " and ",
                inputs.size(), ".", suffix(ErrCode::PARAM));
    check_list(list, /*same_size=*/false);
    for (size_t i = 0; i < inputs.size(); ++i) check_same_numel(inputs[i], {list[i]});
    all.insert(all.end(), list.begin(), list.end());
  }
  return launch({OpType::ALLGATHER_COALESCED, "hccl:all_gather_coalesced", inputs, all, opts.timeout, opts.asyncOp,
                 call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(all), ranks = size_](Engine& engine, const Call& call) {
                  const size_t count = in.spans.size();
                  for (size_t i = 0; i < count; ++i) {
                    std::vector<Span> of_tensor;
                    for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
                      of_tensor.push_back(out.spans[rank * count + i]);
                    }
                    engine.all_gather(call, in.spans[i], of_tensor);
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  check_single(inputs);
  check_root(opts.rootRank, size_, "root");
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = only_list(outputs, size_);
    check_list(list, /*same_size=*/false);
    check_same_numel(inputs[0], list);
  } else {
    TORCH_CHECK(outputs.empty(), "gather: only the root takes outputs, but rank ", rank_, " gave some.",
                suffix(ErrCode::PARAM));
  }
  return launch(
      {OpType::GATHER, "hccl:gather", inputs, list, opts.timeout, opts.asyncOp, call_for(inputs[0], opts.rootRank)},
      [in = HostMemory(inputs), out = HostMemory(list)](Engine& engine, const Call& call) {
        engine.gather(call, in.spans[0], out.spans);
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  check_single(outputs);
  check_root(opts.rootRank, size_, "root");
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = only_list(inputs, size_);
    check_list(list, /*same_size=*/false);
    check_same_numel(outputs[0], list);
  } else {
    TORCH_CHECK(inputs.empty(), "scatter: only the root takes inputs, but rank ", rank_, " gave some.",
                suffix(ErrCode::PARAM));
  }
  return launch(
      {OpType::SCATTER, "hccl:scatter", list, outputs, opts.timeout, opts.asyncOp, call_for(outputs[0], opts.rootRank)},
      [in = HostMemory(list), out = HostMemory(outputs)](Engine& engine, const Call& call) {
        engine.scatter(call, in.spans, out.spans[0]);
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  check_single(outputs);
  const Tensors& list = only_list(inputs, size_);
  check_list(list, /*same_size=*/false);
  check_same_numel(outputs[0], {list[static_cast<size_t>(rank_)]});
  return launch({OpType::REDUCE_SCATTER, "hccl:reduce_scatter", list, outputs, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, outputs[0], "reduce_scatter")},
                [in = HostMemory(list), out = HostMemory(outputs)](Engine& engine, const Call& call) {
                  engine.reduce_scatter(call, in.spans, out.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "Expected as many outputs as inputs, but got ", outputs.size(), " and ",
              inputs.size(), ".", suffix(ErrCode::PARAM));
  check_list(inputs, /*same_size=*/false);
  check_list(outputs, /*same_size=*/false);
  check_matches(inputs[0], outputs[0]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_,
                "input tensor must be the same size as output size times world size, but got ", inputs[i].numel(),
                " and ", outputs[i].numel(), " times ", size_, ".", suffix(ErrCode::PARAM));
  }
  return launch({OpType::_REDUCE_SCATTER_BASE, "hccl:_reduce_scatter_base", inputs, outputs, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, outputs[0], "_reduce_scatter_base")},
                [in = HostMemory(inputs), out = HostMemory(outputs), ranks = size_](Engine& engine, const Call& call) {
                  for (size_t i = 0; i < in.spans.size(); ++i) {
                    const auto bytes = static_cast<int64_t>(in.spans[i].bytes);
                    engine.reduce_scatter(call, cut(in.spans[i], even(bytes, ranks), 1), out.spans[i]);
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_splits,
                                                          std::vector<int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(output_splits, output, size_);
  check_splits(input_splits, input, size_);
  return launch(
      {OpType::ALLTOALL_BASE, "hccl:all_to_all", {input}, {output}, opts.timeout, opts.asyncOp, call_for(input)},
      [in = HostMemory({input}), out = HostMemory({output}), in_rows = rows_of(input_splits, input, size_),
       out_rows = rows_of(output_splits, output, size_)](Engine& engine, const Call& call) {
        engine.all_to_all(call, cut(in.spans[0], in_rows.first, in_rows.second),
                          cut(out.spans[0], out_rows.first, out_rows.second));
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  only_list({outputs}, size_);
  only_list({inputs}, size_);
  check_list(outputs, /*same_size=*/false);
  check_list(inputs, /*same_size=*/false);
  check_matches(inputs[0], outputs[0]);
  check_same_numel(inputs[static_cast<size_t>(rank_)], {outputs[static_cast<size_t>(rank_)]});
  return launch({OpType::ALLTOALL, "hccl:all_to_all", inputs, outputs, opts.timeout, opts.asyncOp, call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(outputs)](Engine& engine, const Call& call) {
                  engine.all_to_all(call, in.spans, out.spans);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::all_gather_into_tensor_uneven(at::Tensor& output, at::Tensor& input,
                                                                          std::vector<int64_t> output_splits,
                                                                          const c10d::AllgatherOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(output_splits, output, size_);
  const auto rows = rows_of(std::move(output_splits), output, size_);
  const size_t mine = static_cast<size_t>(rows.first[static_cast<size_t>(rank_)]) * rows.second;
  TORCH_CHECK(mine == input.nbytes(), "output tensor must have the same numel as input tensor: rank ", rank_,
              "'s part of the output has ", mine, " bytes, its input ", input.nbytes(), ".", suffix(ErrCode::PARAM));
  return launch({OpType::ALLGATHER,
                 "hccl:all_gather_into_tensor_uneven",
                 {input},
                 {output},
                 opts.timeout,
                 opts.asyncOp,
                 call_for(input)},
                [in = HostMemory({input}), out = HostMemory({output}), rows](Engine& engine, const Call& call) {
                  engine.all_gather(call, in.spans[0], cut(out.spans[0], rows.first, rows.second));
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter_tensor_uneven(at::Tensor& output, at::Tensor& input,
                                                                         std::vector<int64_t> input_splits,
                                                                         const c10d::ReduceScatterOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(input_splits, input, size_);
  const auto rows = rows_of(std::move(input_splits), input, size_);
  const size_t mine = static_cast<size_t>(rows.first[static_cast<size_t>(rank_)]) * rows.second;
  TORCH_CHECK(mine == output.nbytes(), "output tensor must have the same numel as input tensor: rank ", rank_,
              "'s part of the input has ", mine, " bytes, its output ", output.nbytes(), ".", suffix(ErrCode::PARAM));
  return launch({OpType::REDUCE_SCATTER,
                 "hccl:reduce_scatter_tensor_uneven",
                 {input},
                 {output},
                 opts.timeout,
                 opts.asyncOp,
                 reduction_call(opts.reduceOp, output, "reduce_scatter_tensor_uneven")},
                [in = HostMemory({input}), out = HostMemory({output}), rows](Engine& engine, const Call& call) {
                  engine.reduce_scatter(call, cut(in.spans[0], rows.first, rows.second), out.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::barrier(const c10d::BarrierOptions& opts) {
  c10::Device device(kNPU, current_device());
  {
    std::lock_guard lock(mutex_);
    if (last_device_) device = *last_device_;
  }
  if (getBoundDeviceId()) device = *getBoundDeviceId();
  if (opts.device && opts.device->has_index()) device = *opts.device;
  if (!opts.device_ids.empty()) {
    device = c10::Device(kNPU, checked_index(static_cast<c10::DeviceIndex>(opts.device_ids[0])));
  }
  Request request{OpType::BARRIER, "hccl:barrier", {}, {}, opts.timeout, opts.asyncOp, Call(), device};
  return launch(std::move(request), [](Engine& engine, const Call& call) {
    engine.barrier(call);
    return -1;
  });
}

void ProcessGroupHCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = ++monitored_barriers_;
  }
  const Deadline deadline(timeout_for(opts.timeout));
  const auto key = [number](int rank) { return fmt::format("monitored_barrier/{}/{}", number, rank); };
  const auto came = [&](int rank) {
    try {
      store_->wait({key(rank)}, deadline.remaining());
      return true;
    } catch (const std::exception&) {  // the store's time-out
      return false;
    }
  };
  std::string missing;
  if (rank_ != 0) {
    store_->set(key(rank_), std::string("here"));
    if (!came(0)) missing = "0";
  } else {
    for (int rank = 1; rank < size_ && (wait_all_ranks || missing.empty()); ++rank) {
      if (!came(rank)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    if (missing.empty()) store_->set(key(0), std::string("here"));
  }
  if (missing.empty()) return;
  C10_THROW_ERROR(
      DistBackendError,
      fmt::format("[Rank {}] monitored barrier {} of group {} was not passed within {} ms: no sign from rank {}.{}",
                  rank_, number, group_label(), deadline.allowed().count(), missing, suffix(ErrCode::TIMEOUT)));
}

// ---- point to point -----------------------------------------------------------------------------------------------

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::send(Tensors& tensors, int peer, int tag) {
  check_single(tensors);
  check_root(peer, size_, "destination");
  TORCH_CHECK(peer != rank_, "Invalid destination rank ", peer, ": a rank cannot send to itself.",
              suffix(ErrCode::VALUE));
  return transfer({OpType::SEND, "hccl:send", tensors, {}, c10d::kUnsetTimeout, true, call_for(tensors[0])}, peer, tag);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::recv(Tensors& tensors, int peer, int tag) {
  check_single(tensors);
  check_root(peer, size_, "source");
  TORCH_CHECK(peer != rank_, "Invalid source rank ", peer, ": a rank cannot receive from itself.",
              suffix(ErrCode::VALUE));
  return transfer({OpType::RECV, "hccl:recv", {}, tensors, c10d::kUnsetTimeout, true, call_for(tensors[0])}, peer, tag);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::recvAnysource(Tensors& tensors, int tag) {
  check_single(tensors);
  return transfer(
      {OpType::RECVANYSOURCE, "hccl:recv_any_source", {}, tensors, c10d::kUnsetTimeout, true, call_for(tensors[0])}, -1,
      tag);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::batch_isend_irecv(const std::vector<std::string>& ops, Tensors& tensors,
                                                              const std::vector<int64_t>& ranks) {
  TORCH_CHECK(ops.size() == tensors.size() && ops.size() == ranks.size(),
              "batch_isend_irecv needs one operation, tensor and rank each, but got ", ops.size(), ", ", tensors.size(),
              " and ", ranks.size(), ".", suffix(ErrCode::PARAM));
  for (const std::string& op : ops) {
    TORCH_CHECK(op == "isend" || op == "irecv", "batch_isend_irecv knows \"isend\" and \"irecv\", but got \"", op,
                "\".", suffix(ErrCode::PARAM));
  }
  startCoalescing();
  for (size_t i = 0; i < ops.size(); ++i) {
    Tensors one{tensors[i]};
    const int peer = static_cast<int>(ranks[i]);
    ops[i] == "isend" ? send(one, peer, 0) : recv(one, peer, 0);
  }
  return endCoalescing();
}

void ProcessGroupHCCL::startCoalescing() {
  // An exception between the two calls leaves the first one without its second: what it collected is dropped here.
  std::lock_guard lock(mutex_);
  coalescing_.emplace();
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::endCoalescing() {
  std::vector<c10::intrusive_ptr<WorkHCCL>> parts;
  c10::Device device(kNPU, current_device());
  WorkHCCL::Info info{
      OpType::COALESCED, "hccl:coalesced", rank_, group_label(), 0, timeout_for(c10d::kUnsetTimeout), unseen_};
  {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(coalescing_.has_value(), "endCoalescing() without startCoalescing().", suffix(ErrCode::INTERNAL));
    parts = std::move(*coalescing_);
    coalescing_.reset();
    if (last_device_) device = *last_device_;
    info.sequence = sequence_;
  }
  Tensors outputs;
  for (const auto& part : parts) {
    const Tensors& some = part->outputs();
    outputs.insert(outputs.end(), some.begin(), some.end());
  }
  auto work = c10::make_intrusive<WorkHCCL>(std::move(info), Tensors{}, std::move(outputs), device);
  if (sanitizer::on()) report_to_sanitizer({OpType::COALESCED, "hccl:coalesced", {}, {}, {}, true, {}, device}, *work);
  work->finish_after(parts);
  return work;
}

// ---- life cycle ---------------------------------------------------------------------------------------------------

void ProcessGroupHCCL::ensure_communicator(c10::Device device) {
  const size_t bytes = 2 * options_->buffer_megabytes() * kMiB;
  std::lock_guard lock(mutex_);
  if (engine_->aborted()) return;  // the operation is going to fail
  communicator_made_ = true;
  if (device.is_cpu() || communicators_.count({device.index(), kGroupItself}) > 0) return;
  caching_allocator::add_external(device.index(), bytes, "HCCL communicator buffers (HCCL_BUFFSIZE)");
  communicators_.insert({device.index(), kGroupItself});
  buffer_bytes_[device.index()] += bytes;
}

void ProcessGroupHCCL::ensure_pair_communicator(c10::Device device, int peer) {
  const size_t megabytes = HcclEnv::get().p2p_buffer_megabytes;
  if (megabytes == 0 || peer < 0) {
    ensure_communicator(device);
    return;
  }
  std::lock_guard lock(mutex_);
  if (engine_->aborted()) return;
  communicator_made_ = true;
  if (device.is_cpu() || communicators_.count({device.index(), peer}) > 0) return;
  const size_t bytes = 2 * megabytes * kMiB;
  caching_allocator::add_external(device.index(), bytes, "HCCL point-to-point buffers (P2P_HCCL_BUFFSIZE)");
  communicators_.insert({device.index(), peer});
  buffer_bytes_[device.index()] += bytes;
}

void ProcessGroupHCCL::release_buffers() noexcept {
  std::lock_guard lock(mutex_);
  for (const auto& [index, bytes] : buffer_bytes_) caching_allocator::remove_external(index, bytes);
  buffer_bytes_.clear();
  communicators_.clear();
}

void ProcessGroupHCCL::eagerConnectSingleDevice(at::Device device) { ensure_communicator(device); }

uint64_t ProcessGroupHCCL::getSequenceNumberForGroup() {
  std::lock_guard lock(mutex_);
  return sequence_;
}

c10d::ErrorType ProcessGroupHCCL::getError() {
  return engine()->aborted() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void ProcessGroupHCCL::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(!onCompletionHook_, "A completion hook is registered already.", suffix(ErrCode::UNAVAIL));
  TORCH_CHECK(sequence_ == 0, "Register the completion hook before the first operation of the group.",
              suffix(ErrCode::UNAVAIL));
  onCompletionHook_ = std::move(hook);
}

void ProcessGroupHCCL::abort() { abort("it was aborted"); }

void ProcessGroupHCCL::abort(const std::string& reason) {
  unseen_->seen();
  engine()->abort(reason);
  release_buffers();
}

void ProcessGroupHCCL::shutdown() {
  unseen_->seen();
  lanes_.drain();
  leave(kPatienceAtShutdown);
}

void ProcessGroupHCCL::leave(std::chrono::milliseconds patience) noexcept {
  const auto leaving = engine();
  lanes_.try_run(kCollectiveLane, [&] { leaving->leave(Deadline(patience)); });
  leaving->abort("the process group was shut down");  // where the lane was busy: cuts off what is pending
  release_buffers();
}

void ProcessGroupHCCL::rebuild(const c10::intrusive_ptr<c10d::Store>& store) {
  abort("it is being rebuilt");
  lanes_.drain();
  auto fresh = connect(store, rank_, size_, options_->timeout, make_gloo_, options_->wire_options());
  std::lock_guard lock(mutex_);
  engine_ = std::move(fresh);
  ++rebuilds_;
}

int64_t ProcessGroupHCCL::rebuilds() const {
  std::lock_guard lock(mutex_);
  return rebuilds_;
}

ProcessGroupHCCL::BackendPtr ProcessGroupHCCL::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::vector<int>& ranks, const OptionsPtr& opts) {
  const auto me = std::find(ranks.begin(), ranks.end(), rank_);
  if (me == ranks.end()) return nullptr;
  const auto* given = dynamic_cast<const Options*>(opts.get());
  TORCH_CHECK_TYPE(given != nullptr, "split: expected ProcessGroupHCCL.Options as options.", suffix(ErrCode::TYPE));
  return make(store, make_gloo_, static_cast<int>(me - ranks.begin()), static_cast<int>(ranks.size()),
              c10::make_intrusive<Options>(*given));
}

ProcessGroupHCCL::BackendPtr ProcessGroupHCCL::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const OptionsPtr& opts, const int& rank, const int& size) {
  const auto* given = dynamic_cast<const Options*>(opts.get());
  TORCH_CHECK_TYPE(given != nullptr, "merge: expected ProcessGroupHCCL.Options as options.", suffix(ErrCode::TYPE));
  return make(store, make_gloo_, rank, size, c10::make_intrusive<Options>(*given));
}

std::string ProcessGroupHCCL::communicator_name(int64_t rank, bool init) {
  TORCH_CHECK(rank >= 0, "Invalid rank ", rank, suffix(ErrCode::VALUE));
  if (rank % device_count() != current_device()) {
    TORCH_WARN("The card of rank ", rank, " would be ", rank % device_count(), ", but the current one is ",
               current_device(), ".");
  }
  if (init) ensure_communicator(c10::Device(kNPU, current_device()));
  std::lock_guard lock(mutex_);
  if (!communicator_made_) return "";
  if (!communicator_name_.empty()) return communicator_name_;
  const std::string given = options_->communicator_name();
  return given.empty() ? "hccl_" + group_label() : given;
}

void ProcessGroupHCCL::set_communicator_name(const std::string& name) {
  TORCH_CHECK(!name.empty() && name.size() <= 127, "The name of a communicator has 1 to 127 characters, but got ",
              name.size(), ".", suffix(ErrCode::PARAM));
  std::lock_guard lock(mutex_);
  TORCH_CHECK(communicator_name_.empty(), "The communicator already has the name \"", communicator_name_, "\".",
              suffix(ErrCode::PARAM));
  communicator_name_ = name;
}

int64_t ProcessGroupHCCL::communicator_handle(int64_t rank) {
  communicator_name(rank, /*init=*/true);
  return reinterpret_cast<int64_t>(engine().get());
}

}  // namespace cann::hccl
