#include "distributed/mesh_engine.h"

#include <cstring>
#include <utility>

#include "distributed/algorithms.h"
#include "distributed/compressed_sum.h"

namespace cann::hccl {
namespace {

void copy(Span from, Span to) {
  if (from.bytes > 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes);
}

Messages to_each(const std::vector<Span>& spans) { return {spans.begin(), spans.end()}; }

uint64_t total_of(const std::vector<Span>& spans) {
  uint64_t total = 0;
  for (const Span& span : spans) total += span.bytes;
  return total;
}

// The call with the size that all ranks must agree on.
Call sized(Call call, uint64_t bytes) {
  call.bytes = bytes;
  return call;
}

}  // namespace

MeshEngine::MeshEngine(std::shared_ptr<Transport> transport, WireOptions options, Transfers transfers)
    : transport_(std::move(transport)), options_(std::move(options)), transfers_(std::move(transfers)) {}

template <typename Make>
void MeshEngine::run(const Call& call, Make&& make) {
  scratch_.reset();
  run_plan(*transport_, call, make());
}

void MeshEngine::exchange(const Call& call, const Messages& outgoing, const Messages& incoming) {
  transport_->start(call, outgoing, incoming)->finish();
}

Algorithm MeshEngine::choose(MeshOperation operation, const Call& call, size_t bytes) const {
  return options_.algorithms.choose(operation, bytes, call.dtype, call.reduction, transport_->size());
}

Plan MeshEngine::plan_all_reduce(const Call& call, Span data, size_t nominal) {
  const int rank = transport_->rank(), n = transport_->size();
  if (is_compressed(options_.format, call, nominal)) {
    return compressed_sum_plan(options_.format, call, rank, n, data, residuals_, scratch_);
  }
  return all_reduce_plan(choose(MeshOperation::kAllReduce, call, nominal), call, rank, n, data, scratch_);
}

Plan MeshEngine::plan_reduce(const Call& call, Span data) {
  const int n = transport_->size();
  const Algorithm algorithm = n == 2 ? Algorithm::kWhole : Algorithm::kDirect;
  return reduce_plan(algorithm, call, transport_->rank(), n, data, scratch_);
}

Plan MeshEngine::plan_reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const Algorithm algorithm = choose(MeshOperation::kReduceScatter, call, total_of(inputs));
  return reduce_scatter_plan(algorithm, call, transport_->rank(), transport_->size(), inputs, output, scratch_);
}

Plan MeshEngine::plan_all_gather(const Call& call, const std::vector<Span>& parts) {
  const Algorithm algorithm = choose(MeshOperation::kAllGather, call, total_of(parts));
  return all_gather_plan(algorithm, transport_->rank(), transport_->size(), parts);
}

Plan MeshEngine::plan_broadcast(const Call& call, Span data) {
  const Algorithm algorithm = choose(MeshOperation::kBroadcast, call, data.bytes);
  return broadcast_plan(algorithm, transport_->rank(), transport_->size(), call.root, data);
}

void MeshEngine::all_reduce(const Call& call, Span data) {
  const Call whole = sized(call, data.bytes);
  run(whole, [&] { return plan_all_reduce(whole, data, data.bytes); });
}

void MeshEngine::reduce(const Call& call, Span data) {
  const Call whole = sized(call, data.bytes);
  run(whole, [&] { return plan_reduce(whole, data); });
}

void MeshEngine::broadcast(const Call& call, Span data) {
  run(sized(call, data.bytes), [&] { return plan_broadcast(call, data); });
}

void MeshEngine::all_gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  copy(input, outputs[me()]);
  run(sized(call, total_of(outputs)), [&] { return plan_all_gather(call, outputs); });
}

void MeshEngine::reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const Call whole = sized(call, total_of(inputs));
  run(whole, [&] { return plan_reduce_scatter(whole, inputs, output); });
}

void MeshEngine::all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) {
  copy(inputs[me()], outputs[me()]);
  exchange(call, to_each(inputs), to_each(outputs));
}

void MeshEngine::gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  const bool is_root = transport_->rank() == call.root;
  if (is_root) copy(input, outputs[me()]);
  Messages outgoing = to_all({});
  if (!is_root) outgoing[static_cast<size_t>(call.root)] = input;
  exchange(call, outgoing, is_root ? to_each(outputs) : to_all({}));
}

void MeshEngine::scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const bool is_root = transport_->rank() == call.root;
  if (is_root) copy(inputs[me()], output);
  Messages incoming = to_all({});
  if (!is_root) incoming[static_cast<size_t>(call.root)] = output;
  exchange(call, is_root ? to_each(inputs) : to_all({}), incoming);
}

void MeshEngine::barrier(const Call& call) { agree(call); }

void MeshEngine::agree(const Call& call) { exchange(call, to_all({}), to_all({})); }

void MeshEngine::leave(const Deadline& deadline) noexcept {
  Call call;
  call.op = kLeaving;
  call.deadline = deadline;
  Messages messages(ranks());
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (transport_->talked_to(static_cast<int>(peer))) messages[peer] = Span{};
  }
  try {
    exchange(call, messages, messages);
  } catch (const std::exception&) {
    // A peer that is gone, or goes on without this rank and will be told by its next operation.
  }
  transport_->abort("the process group was shut down");
}

}  // namespace cann::hccl
