#include "distributed/process_group_hccl.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "distributed/comms_record.h"
#include "distributed/flight_recorder.h"
#include "distributed/hccl_env.h"
#include "distributed/process_group_request.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/sanitizer.h"
#include "runtime/simulator.h"
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

}  // namespace

ProcessGroupHCCL::ProcessGroupHCCL(const c10::intrusive_ptr<c10d::Store>& store, GlooMaker make_gloo, int rank,
                                   int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size), options_(std::move(options)), make_gloo_(std::move(make_gloo)) {
  Connection connection = connect(store, rank, size, options_->timeout, make_gloo_, options_->wire_options());
  store_ = std::move(connection.store);
  engine_ = std::move(connection.engine);
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

c10::intrusive_ptr<ProcessGroupHCCL> ProcessGroupHCCL::make(const c10::intrusive_ptr<c10d::Store>& store,
                                                            GlooMaker make_gloo, int rank, int size,
                                                            c10::intrusive_ptr<Options> options) {
  auto group = c10::make_intrusive<ProcessGroupHCCL>(store, std::move(make_gloo), rank, size, std::move(options));
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

c10::intrusive_ptr<WorkHCCL> ProcessGroupHCCL::make_work(const Request& request, Call& call, int peer) {
  std::call_once(first_operation_, [this] { become_default_of_group(); });
  const bool p2p = c10d::isP2POp(request.op);
  WorkHCCL::Info info{request.op, request.title, rank_, group_label(), 0, timeout_for(request.timeout), unseen_};
  std::lock_guard lock(mutex_);
  info.sequence = p2p ? ++p2p_sequence_ : ++sequence_;
  call.sequence = info.sequence;
  call.op = static_cast<uint8_t>(request.op);
  // Who sends is done when the peer has read, so its waiting cannot be told from moving bytes.
  if (at::hasCallbacks() && request.op != OpType::SEND) info.measured_as = getGroupUid();
  last_device_ = request.device;
  c10::intrusive_ptr<WorkHCCL> work;
  const int partner = p2p ? peer : call.root >= 0 ? call.root : rank_;
  const CommsRecord record{.title = request.title,
                           .sequence = info.sequence,
                           .is_p2p = p2p,
                           .is_async = request.async,
                           .rank = partner,
                           .group = getGroupUid(),
                           .global_ranks = options_->global_ranks_in_group,
                           .size = size_};
  recorded(record, request.inputs, request.outputs, [&] {
    work = c10::make_intrusive<WorkHCCL>(std::move(info), request.inputs, request.outputs, request.device);
  });
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

c10::Stream ProcessGroupHCCL::communication_stream(c10::Device device) {
  std::lock_guard lock(mutex_);
  if (!communication_stream_ || communication_stream_->device() != device) {
    communication_stream_ = stream_from_pool(device.index(), /*priority=*/-1);
  }
  return *communication_stream_;
}

std::optional<VirtualTime::Arrival> ProcessGroupHCCL::arrive(const Request& request, WorkHCCL& work, int peer) {
  if (!simulator::on() || request.device.is_cpu()) return std::nullopt;
  {
    std::lock_guard lock(mutex_);
    if (!virtual_time_) {
      std::vector<int64_t> ranks(options_->global_ranks_in_group.begin(), options_->global_ranks_in_group.end());
      virtual_time_ = std::make_shared<VirtualTime>(std::move(ranks), rank_, size_);
    }
  }
  const auto arrival = virtual_time_->arrive(request.op, request.inputs, request.outputs, request.device, peer);
  work.runs_on(communication_stream(request.device));
  return arrival;
}

void ProcessGroupHCCL::report_to_sanitizer(const Request& request, WorkHCCL& work) {
  if (request.device.is_cpu()) return;
  const c10::Stream stream = communication_stream(request.device);
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
  auto work = make_work(request, call, /*peer=*/-1);
  if (sanitizer::on()) report_to_sanitizer(request, *work);
  const auto arrival = arrive(request, *work);
  auto task = [engine = engine(), work, call, timeout = timeout_for(request.timeout), body = std::move(body), arrival,
               clock = virtual_time_]() mutable {
    call.deadline = Deadline(timeout);
    work->run([&] {
      if (arrival) work->ends_at(clock->meet(*engine, call, *arrival));
      return body(*engine, call);
    });
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
  auto work = make_work(request, call, peer);
  if (sanitizer::on()) report_to_sanitizer(request, *work);
  call.deadline = Deadline(timeout_for(request.timeout));
  const auto arrival = arrive(request, *work, peer);
  const HostMemory memory(request.op == OpType::SEND ? request.inputs : request.outputs);
  // Posted here and now: the order of posting is what pairs transfers with those of the peer.
  std::shared_ptr<Transfer> posted;
  std::shared_ptr<Transfer> told;
  const auto target = engine();
  try {
    auto transfer = request.op == OpType::SEND ? target->send(call, memory.spans[0], peer, tag)
                                               : target->recv(call, memory.spans[0], peer, tag);
    // The transfer goes first, then the memory and the engine it uses.
    posted = {transfer.release(), [target, memory](Transfer* done) { delete done; }};
    if (arrival && request.op == OpType::SEND) told = VirtualTime::tell(*target, call, *arrival, peer, tag);
  } catch (const EngineError& error) {
    work->run([&error]() -> int { throw error; });
    return work;
  }
  const bool ready = posted->ready();
  const Lanes::Key lane = transfer_lane(request.op, peer, tag);
  Lanes::Task finish = [work, target, call, arrival, clock = virtual_time_, tag, posted = std::move(posted),
                        told = std::move(told)] {
    work->run([&] {
      posted->wait();
      if (told) told->wait();
      if (arrival) {
        work->ends_at(told ? arrival->ready + arrival->us
                           : clock->learn(*target, call, *arrival, posted->source(), tag));
      }
      return posted->source();
    });
  };
  // A short message that lies in its place already is not worth two thread switches, nor is one soon waited for.
  if (!ready || !lanes_.try_run(lane, finish)) work->helped_by(lanes_.post_deferred(lane, std::move(finish)));
  return work;
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
  if (simulator::on()) work->runs_on(communication_stream(device));
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
  auto fresh = connect(store, rank_, size_, options_->timeout, make_gloo_, options_->wire_options()).engine;
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
