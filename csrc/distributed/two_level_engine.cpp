#include "distributed/two_level_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace cann::hccl {
namespace {

// Below this many bytes an operation's cost is its number of steps between hosts, of which one mesh takes the fewest.
constexpr size_t kTwoLevelBytes = 64 * 1024;

Call rooted(Call call, size_t root) {
  call.root = static_cast<int>(root);
  return call;
}

Call reducing(Call call, Reduction reduction) {
  call.reduction = reduction;
  return call;
}

bool is_floating(DataType dtype) {
  return dtype == DataType::kFloat || dtype == DataType::kHalf || dtype == DataType::kBFloat16;
}

}  // namespace

TwoLevelEngine::TwoLevelEngine(Hosts hosts, int rank, std::shared_ptr<Engine> local, std::shared_ptr<Engine> rail,
                               std::shared_ptr<Engine> all)
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
  parts_ = fmt::format("ranks {} of this host or ranks {} across hosts", fmt::join(hosts_[host_], ", "),
                       fmt::join(rail_ranks, ", "));
}

template <typename Body>
void TwoLevelEngine::or_abort(Body&& body) {
  try {
    body();
  } catch (const EngineError& error) {
    // The engines of a part number its ranks from 0.
    const EngineError named(error.kind,
                            fmt::format("on the way through {}, where ranks count from 0: {}", parts_, error.what()));
    abort(named.what());
    throw named;
  } catch (...) {
    abort("it was interrupted");
    throw;
  }
}

void TwoLevelEngine::all_reduce(const Call& call, Span data) {
  // A mean of whole numbers is rounded once, at the end, so it cannot be taken in two steps.
  const bool in_steps = call.reduction != Reduction::kAverage || is_floating(call.dtype);
  if (data.bytes < kTwoLevelBytes || !in_steps) return all_->all_reduce(call, data);
  or_abort([&] {
    const size_t item = element_bytes(call.dtype);
    const int ranks = static_cast<int>(hosts_[host_].size());
    std::vector<Span> parts;
    for (int place = 0; place < ranks; ++place) {
      const Slice slice = slice_of(data.bytes / item, place, ranks, 64 / item);
      parts.push_back({data.data + slice.begin * item, (slice.end - slice.begin) * item});
    }
    const Span mine = parts[place_];
    local_->reduce_scatter(call, parts, mine);
    // Factors have been applied; the mean of equally large groups' means is the mean.
    const bool scaled = call.reduction == Reduction::kPremultipliedSum;
    rail_->all_reduce(scaled ? reducing(call, Reduction::kSum) : call, mine);
    local_->all_gather(call, mine, parts);
  });
}

void TwoLevelEngine::broadcast(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->broadcast(call, data);
  or_abort([&] {
    for (size_t host = 0; host < hosts_.size(); ++host) {
      for (size_t place = 0; place < hosts_[host].size(); ++place) {
        if (hosts_[host][place] != call.root) continue;
        if (place == place_) rail_->broadcast(rooted(call, host), data);
        local_->broadcast(rooted(call, place), data);
      }
    }
  });
}

void TwoLevelEngine::all_gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  // All ranks must choose alike, and know no sizes but those of the outputs.
  size_t total = 0;
  for (const Span& output : outputs) total += output.bytes;
  if (total < kTwoLevelBytes) return all_->all_gather(call, input, outputs);
  or_abort([&] {
    std::vector<Span> of_rail;
    for (const auto& ranks : hosts_) of_rail.push_back(outputs[static_cast<size_t>(ranks[place_])]);
    rail_->all_gather(call, input, of_rail);
    // Inside the host each rank now gives what its rail brought, one host after the other.
    for (const auto& ranks : hosts_) {
      std::vector<Span> of_host;
      for (const int rank : ranks) of_host.push_back(outputs[static_cast<size_t>(rank)]);
      local_->all_gather(call, of_host[place_], of_host);
    }
  });
}

void TwoLevelEngine::barrier(const Call& call) {
  or_abort([&] {
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
