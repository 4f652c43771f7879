#include "distributed/mesh_engine.h"

#include <algorithm>
#include <cstring>

#include "distributed/reduction.h"

namespace cann::hccl {
namespace {

void copy(Span from, Span to) {
  if (from.bytes > 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes);
}

GlooMesh::Spans to_each(const std::vector<Span>& spans) { return {spans.begin(), spans.end()}; }

// Up to this many bytes received, one round of whole tensors beats two rounds of slices.
constexpr size_t kOneRound = 256 * 1024;
// A larger inbox is given back after use.
constexpr size_t kKeptInbox = size_t{64} << 20;

void reduce_parts(const Call& call, const std::vector<Span>& inbox, const std::vector<Header>& headers, Span out) {
  std::vector<const std::byte*> parts;
  std::vector<double> factors;
  for (const Span& span : inbox) parts.push_back(span.data);
  for (const Header& header : headers) factors.push_back(header.factor);
  reduce_in_order(call.reduction, call.dtype, parts, factors, {out.data}, out.bytes / element_bytes(call.dtype));
}

}  // namespace

std::vector<Span> MeshEngine::slices(const Call& call, Span whole) const {
  const size_t item = element_bytes(call.dtype);
  std::vector<Span> result;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const Slice slice = slice_of(whole.bytes / item, rank, mesh_.size());
    result.push_back({whole.data + slice.begin * item, (slice.end - slice.begin) * item});
  }
  return result;
}

std::vector<Span> MeshEngine::inbox(Span mine) {
  const auto ranks = static_cast<size_t>(mesh_.size());
  const size_t needed = mine.bytes * (ranks - 1);
  if (needed > inbox_bytes_) {
    inbox_.reset(new std::byte[needed]);
    inbox_bytes_ = needed;
  }
  std::vector<Span> result;
  std::byte* next = inbox_.get();
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank == me()) {
      result.push_back(mine);
    } else {
      result.push_back({next, mine.bytes});
      next += mine.bytes;
    }
  }
  return result;
}

void MeshEngine::trim_inbox() {
  if (inbox_bytes_ <= kKeptInbox) return;
  inbox_.reset();
  inbox_bytes_ = 0;
}

void MeshEngine::all_reduce(const Call& call, Span data) {
  if (data.bytes * static_cast<size_t>(mesh_.size() - 1) <= kOneRound) {
    const std::vector<Span> from_all = inbox(data);
    std::vector<Header> headers;
    mesh_.exchange(call, to_all(data), to_each(from_all), &headers);
    reduce_parts(call, from_all, headers, data);
    return;
  }
  const std::vector<Span> parts = slices(call, data);
  reduce_scatter(call, parts, parts[me()]);
  mesh_.exchange(call, to_all(parts[me()]), to_each(parts));
}

void MeshEngine::reduce(const Call& call, Span data) {
  const std::vector<Span> parts = slices(call, data);
  const bool is_root = mesh_.rank() == call.root;
  const size_t own = parts[me()].bytes;
  const std::unique_ptr<std::byte[]> room(is_root ? nullptr : new std::byte[own]);  // only the root's data may change
  const Span result{is_root ? parts[me()].data : room.get(), own};
  reduce_scatter(call, parts, result);
  auto outgoing = to_none();
  if (!is_root) outgoing[static_cast<size_t>(call.root)] = result;
  mesh_.exchange(call, outgoing, is_root ? to_each(parts) : to_none());
}

void MeshEngine::broadcast(const Call& call, Span data) {
  const bool is_root = mesh_.rank() == call.root;
  auto incoming = to_none();
  if (!is_root) incoming[static_cast<size_t>(call.root)] = data;
  mesh_.exchange(call, is_root ? to_all(data) : to_none(), incoming);
}

void MeshEngine::all_gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  copy(input, outputs[me()]);
  mesh_.exchange(call, to_all(outputs[me()]), to_each(outputs));
}

void MeshEngine::reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const std::vector<Span> from_all = inbox(inputs[me()]);
  std::vector<Header> headers;
  mesh_.exchange(call, to_each(inputs), to_each(from_all), &headers);
  reduce_parts(call, from_all, headers, output);
  trim_inbox();
}

void MeshEngine::all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) {
  copy(inputs[me()], outputs[me()]);
  mesh_.exchange(call, to_each(inputs), to_each(outputs));
}

void MeshEngine::gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  const bool is_root = mesh_.rank() == call.root;
  if (is_root) copy(input, outputs[me()]);
  auto outgoing = to_none();
  if (!is_root) outgoing[static_cast<size_t>(call.root)] = input;
  mesh_.exchange(call, outgoing, is_root ? to_each(outputs) : to_none());
}

void MeshEngine::scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const bool is_root = mesh_.rank() == call.root;
  if (is_root) copy(inputs[me()], output);
  auto incoming = to_none();
  if (!is_root) incoming[static_cast<size_t>(call.root)] = output;
  mesh_.exchange(call, is_root ? to_each(inputs) : to_none(), incoming);
}

void MeshEngine::barrier(const Call& call) { mesh_.exchange(call, to_all({}), to_all({})); }

void MeshEngine::leave(const Deadline& deadline) noexcept {
  Call call;
  call.op = kLeaving;
  call.deadline = deadline;
  auto spans = to_none();
  for (size_t peer = 0; peer < spans.size(); ++peer) {
    if (mesh_.talked_to(static_cast<int>(peer))) spans[peer] = Span{};
  }
  try {
    mesh_.exchange(call, spans, spans);
  } catch (const std::exception&) {
    // A peer that is gone, or goes on without this rank and will be told by its next operation.
  }
  mesh_.abort("the process group was shut down");
}

}  // namespace cann::hccl
