#include "distributed/two_level_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace cann::hccl {
namespace {

// Below this many bytes an operation's cost is its number of steps between hosts, of which one mesh takes the fewest.
constexpr size_t kTwoLevelBytes = 64 * 1024;
// Of a chunk: large enough that a message's fixed cost is small, small enough that what is not overlapped is little.
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kMostChunks = 64;
constexpr size_t kCacheLine = 64;

size_t chunks_of(size_t bytes) { return std::clamp<size_t>(bytes / kChunkBytes, 1, kMostChunks); }

// Chunk `chunk` of `chunks` of a tensor whose elements have `item` bytes.
Span chunk_of(Span whole, size_t chunk, size_t chunks, size_t item) {
  const size_t unit = std::max<size_t>(kCacheLine / item, 1);
  const Slice slice = slice_of(whole.bytes / item, static_cast<int>(chunk), static_cast<int>(chunks), unit);
  return {whole.data + slice.begin * item, (slice.end - slice.begin) * item};
}

std::vector<Span> chunk_of(const std::vector<Span>& all, size_t chunk, size_t chunks, size_t item) {
  std::vector<Span> parts;
  for (const Span& one : all) parts.push_back(chunk_of(one, chunk, chunks, item));
  return parts;
}

size_t total_of(const std::vector<Span>& spans) {
  size_t total = 0;
  for (const Span& span : spans) total += span.bytes;
  return total;
}

Call rooted(Call call, size_t root) {
  call.root = static_cast<int>(root);
  return call;
}

Call sized(Call call, size_t bytes) {
  call.bytes = bytes;
  return call;
}

bool is_16_bit(DataType dtype) { return dtype == DataType::kHalf || dtype == DataType::kBFloat16; }

}  // namespace

TwoLevelEngine::TwoLevelEngine(Hosts hosts, int rank, std::shared_ptr<Engine> local, std::shared_ptr<MeshEngine> rail,
                               std::shared_ptr<MeshEngine> all)
    : hosts_(std::move(hosts)), local_(std::move(local)), rail_(std::move(rail)), all_(std::move(all)) {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t place = 0; place < hosts_[host].size(); ++place) {
      if (hosts_[host][place] == rank) {
        host_ = host;
        place_ = place;
      }
    }
  }
  std::vector<int> rail_ranks;
  for (const auto& ranks : hosts_) rail_ranks.push_back(ranks[place_]);
  // The engines of a part number its ranks from 0.
  parts_ = fmt::format("on the way through ranks {} of this host or ranks {} across hosts, where ranks count from 0: ",
                       fmt::join(hosts_[host_], ", "), fmt::join(rail_ranks, ", "));
}

template <typename Body>
void TwoLevelEngine::or_abort(const std::string& where, Body&& body) {
  try {
    body();
  } catch (const EngineError& error) {
    const EngineError named(error.kind, where + error.what());
    abort(named.what());
    throw named;
  } catch (...) {
    abort("it was interrupted");
    throw;
  }
}

void TwoLevelEngine::agree(const Call& call) {
  or_abort("", [&] { all_->agree(call); });
}

void TwoLevelEngine::run_on_rail(const Call& call, size_t chunks, const std::function<Plan(size_t)>& make,
                                 const std::function<void(size_t)>& done) {
  rail_->scratch().reset();
  run_plans(rail_->transport(), call, chunks, make, done);
}

std::vector<Span> TwoLevelEngine::of_host(size_t host, const std::vector<Span>& spans) const {
  std::vector<Span> result;
  for (const int rank : hosts_[host]) result.push_back(spans[static_cast<size_t>(rank)]);
  return result;
}

std::vector<Span> TwoLevelEngine::of_rail(const std::vector<Span>& spans) const {
  std::vector<Span> result;
  for (const auto& ranks : hosts_) result.push_back(spans[static_cast<size_t>(ranks[place_])]);
  return result;
}

// A mean divides once, at the end; but of 16-bit types it is the mean of the hosts' means, whose sum might overflow.
Call TwoLevelEngine::inside(const Call& call) const {
  Call result = call;
  if (call.reduction == Reduction::kAverage && !is_16_bit(call.dtype)) result.reduction = Reduction::kSum;
  return result;
}

Call TwoLevelEngine::between(const Call& call) const {
  Call result = call;
  // Factors have been applied inside.
  if (call.reduction == Reduction::kPremultipliedSum) result.reduction = Reduction::kSum;
  if (!is_16_bit(call.dtype)) result.divisor = static_cast<int>(hosts_.size() * hosts_[host_].size());
  return result;
}

void TwoLevelEngine::all_reduce(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->all_reduce(call, data);
  const Call whole = sized(call, data.bytes);
  agree(whole);
  or_abort(parts_, [&] {
    const size_t item = element_bytes(call.dtype);
    const size_t chunks = chunks_of(data.bytes);
    const size_t ranks = hosts_[host_].size();
    std::vector<std::vector<Span>> parts(chunks);
    const auto make = [&](size_t i) {
      const Span chunk = chunk_of(data, i, chunks, item);
      for (size_t place = 0; place < ranks; ++place) parts[i].push_back(chunk_of(chunk, place, ranks, item));
      local_->reduce_scatter(inside(whole), parts[i], parts[i][place_]);
      // By the first part's size, so that all rails take the same steps.
      return rail_->plan_all_reduce(between(whole), parts[i][place_], parts[i][0].bytes);
    };
    run_on_rail(between(whole), chunks, make, [&](size_t i) { local_->all_gather(whole, parts[i][place_], parts[i]); });
  });
}

void TwoLevelEngine::reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const size_t total = total_of(inputs);
  if (total < kTwoLevelBytes) return all_->reduce_scatter(call, inputs, output);
  const Call whole = sized(call, total);
  agree(whole);
  or_abort(parts_, [&] {
    const size_t item = element_bytes(call.dtype);
    const size_t chunks = chunks_of(total);
    const auto make = [&](size_t i) {
      const std::vector<Span> chunk = chunk_of(inputs, i, chunks, item);
      std::vector<Span> of_this_host;  // this host's sums for the ranks of the rail
      for (size_t host = 0; host < hosts_.size(); ++host) {
        const std::vector<Span> parts = of_host(host, chunk);
        of_this_host.push_back(rail_->scratch().take(parts[place_].bytes));
        local_->reduce_scatter(inside(whole), parts, of_this_host.back());
      }
      return rail_->plan_reduce_scatter(between(whole), of_this_host, chunk_of(output, i, chunks, item));
    };
    run_on_rail(between(whole), chunks, make, [](size_t) {});
  });
}

void TwoLevelEngine::broadcast(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->broadcast(call, data);
  const Call whole = sized(call, data.bytes);
  agree(whole);
  or_abort(parts_, [&] {
    size_t host = 0;
    while (std::find(hosts_[host].begin(), hosts_[host].end(), call.root) == hosts_[host].end()) ++host;
    const auto found = std::find(hosts_[host].begin(), hosts_[host].end(), call.root);
    const auto place = static_cast<size_t>(found - hosts_[host].begin());
    const size_t chunks = chunks_of(data.bytes);
    const auto pass_on = [&](size_t i) { local_->broadcast(rooted(whole, place), chunk_of(data, i, chunks, 1)); };
    if (place == place_) {
      const Call along = rooted(whole, host);
      run_on_rail(
          along, chunks, [&](size_t i) { return rail_->plan_broadcast(along, chunk_of(data, i, chunks, 1)); }, pass_on);
    } else {
      for (size_t i = 0; i < chunks; ++i) pass_on(i);
    }
  });
}

void TwoLevelEngine::all_gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  // All ranks must choose alike, and know no sizes but those of the outputs.
  const size_t total = total_of(outputs);
  if (total < kTwoLevelBytes) return all_->all_gather(call, input, outputs);
  const Call whole = sized(call, total);
  agree(whole);
  or_abort(parts_, [&] {
    const size_t chunks = chunks_of(total);
    const Span mine = outputs[static_cast<size_t>(hosts_[host_][place_])];
    if (mine.data != input.data && mine.bytes > 0) std::copy_n(input.data, mine.bytes, mine.data);
    const auto make = [&](size_t i) { return rail_->plan_all_gather(whole, chunk_of(of_rail(outputs), i, chunks, 1)); };
    // Inside the host each rank then gives what its rail brought, one host after the other.
    run_on_rail(whole, chunks, make, [&](size_t i) {
      for (size_t host = 0; host < hosts_.size(); ++host) {
        const std::vector<Span> parts = chunk_of(of_host(host, outputs), i, chunks, 1);
        local_->all_gather(whole, parts[place_], parts);
      }
    });
  });
}

void TwoLevelEngine::all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) {
  Messages outgoing(inputs.begin(), inputs.end());
  Messages incoming(outputs.begin(), outputs.end());
  for (const int rank : hosts_[host_]) {
    outgoing[static_cast<size_t>(rank)].reset();
    incoming[static_cast<size_t>(rank)].reset();
  }
  std::unique_ptr<Round> round;
  or_abort("", [&] { round = all_->transport().start(call, outgoing, incoming); });
  or_abort(parts_, [&] { local_->all_to_all(call, of_host(host_, inputs), of_host(host_, outputs)); });
  or_abort("", [&] { round->finish(); });
}

void TwoLevelEngine::barrier(const Call& call) {
  or_abort(parts_, [&] {
    local_->barrier(call);
    rail_->barrier(call);
    local_->barrier(call);
  });
}

void TwoLevelEngine::leave(const Deadline& deadline) noexcept {
  all_->leave(deadline);
  rail_->leave(deadline);
  local_->leave(deadline);
}

void TwoLevelEngine::abort(const std::string& reason) noexcept {
  all_->abort(reason);
  rail_->abort(reason);
  local_->abort(reason);
}

}  // namespace cann::hccl
