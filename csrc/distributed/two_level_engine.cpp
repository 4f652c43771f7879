#include "distributed/two_level_engine.h"

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

TwoLevelEngine::TwoLevelEngine(HostMap map, std::shared_ptr<Engine> local, std::shared_ptr<MeshEngine> rail,
                               std::shared_ptr<MeshEngine> all)
    : map_(std::move(map)),
      // The engines of a part number its ranks from 0.
      parts_("on the way through " + map_.describe() + ", where ranks count from 0: "),
      local_(std::move(local)),
      rail_(std::move(rail)),
      all_(std::move(all)) {}

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
  if (!is_16_bit(call.dtype)) {
    result.divisor = static_cast<int>(map_.ranks());
  } else if (call.reduction == Reduction::kAverage && !map_.even()) {
    result.reduction = Reduction::kPremultipliedSum;  // a host counts by its ranks
    result.factor = static_cast<double>(map_.ranks_here()) / static_cast<double>(map_.ranks());
  }
  return result;
}

std::vector<Span> TwoLevelEngine::for_carriers(Span chunk, size_t item) const {
  const size_t rails = map_.rails();
  std::vector<Span> parts(map_.ranks_here());
  for (size_t place = 0; place < rails; ++place) parts[place] = chunk_of(chunk, place, rails, item);
  return parts;
}

void TwoLevelEngine::all_reduce(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->all_reduce(call, data);
  const Call whole = sized(call, data.bytes);
  agree(whole);
  or_abort(parts_, [&] {
    const size_t item = element_bytes(call.dtype);
    const size_t chunks = chunks_of(data.bytes);
    std::vector<std::vector<Span>> parts(chunks);
    const auto make = [&](size_t i) {
      parts[i] = for_carriers(chunk_of(data, i, chunks, item), item);
      local_->reduce_scatter(inside(whole), parts[i], parts[i][map_.place()]);
      // By the first part's size, so that all rails take the same steps.
      return rail_->plan_all_reduce(between(whole), parts[i][map_.place()], parts[i][0].bytes);
    };
    run_on_rail(between(whole), chunks, make,
                [&](size_t i) { local_->all_gather(whole, parts[i][map_.place()], parts[i]); });
  });
}

void TwoLevelEngine::reduce(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->reduce(call, data);
  const Call whole = sized(call, data.bytes);
  agree(whole);
  or_abort(parts_, [&] {
    const HostMap::Seat root = map_.seat_of(call.root);
    const Call along = rooted(between(whole), root.host);
    const size_t item = element_bytes(call.dtype);
    const size_t chunks = chunks_of(data.bytes);
    std::vector<std::vector<Span>> parts(chunks);
    std::vector<Span> sums(chunks);  // only the root's data may change
    const auto make = [&](size_t i) {
      parts[i] = for_carriers(chunk_of(data, i, chunks, item), item);
      sums[i] = rail_->scratch().take(parts[i][map_.place()].bytes);
      local_->reduce_scatter(rooted(inside(whole), root.place), parts[i], sums[i]);
      return rail_->plan_reduce(along, sums[i]);
    };
    run_on_rail(along, chunks, make, [&](size_t i) {
      if (map_.host() == root.host) local_->gather(rooted(whole, root.place), sums[i], parts[i]);
    });
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
    // What this host's carriers have in the end, by place, for whom they carry it. The first wave's are their own.
    std::vector<std::vector<Span>> carried(map_.waves() * chunks);
    const auto make = [&](size_t i) {
      const size_t wave = i / chunks;
      const std::vector<Span> chunk = chunk_of(inputs, i % chunks, chunks, item);
      std::vector<Span> of_this_host;  // this host's sums for the ranks that the rail serves
      for (size_t host = 0; host < map_.hosts(); ++host) {
        const std::vector<Span> parts = map_.carried_for(host, wave, chunk);
        of_this_host.push_back(rail_->scratch().take(parts[map_.place()].bytes));
        local_->reduce_scatter(inside(whole), parts, of_this_host.back());
      }
      carried[i] = map_.carried_for(map_.host(), wave, chunk);
      Span& mine = carried[i][map_.place()];
      mine = wave > 0 ? rail_->scratch().take(mine.bytes)
                      : Span{chunk_of(output, i % chunks, chunks, item).data, mine.bytes};
      return rail_->plan_reduce_scatter(between(whole), of_this_host, mine);
    };
    run_on_rail(between(whole), carried.size(), make, [&](size_t i) {
      if (const size_t wave = i / chunks; wave > 0) {
        hand_on(whole, wave, carried[i][map_.place()], chunk_of(output, i % chunks, chunks, item));
      }
    });
  });
}

void TwoLevelEngine::hand_on(const Call& call, size_t wave, Span carried, Span output) {
  const size_t here = map_.ranks_here(), rails = map_.rails(), place = map_.place();
  std::vector<Span> outgoing(here), incoming(here);
  if (place < rails && place + wave * rails < here) outgoing[place + wave * rails] = carried;
  if (place / rails == wave) incoming[place % rails] = output;
  local_->all_to_all(call, outgoing, incoming);
}

void TwoLevelEngine::broadcast(const Call& call, Span data) {
  if (data.bytes < kTwoLevelBytes) return all_->broadcast(call, data);
  const Call whole = sized(call, data.bytes);
  agree(whole);
  or_abort(parts_, [&] {
    const HostMap::Seat root = map_.seat_of(call.root);
    const bool root_carries = root.place < map_.rails();
    const size_t carrier = root_carries ? root.place : 0;
    const bool at_root = map_.host() == root.host;
    const bool first_inside = at_root && !root_carries;  // the carrier must get what it is to carry
    const size_t chunks = chunks_of(data.bytes);
    const auto pass_on = [&](size_t i) {
      local_->broadcast(rooted(whole, at_root ? root.place : carrier), chunk_of(data, i, chunks, 1));
    };
    if (map_.place() != carrier) {
      for (size_t i = 0; i < chunks; ++i) pass_on(i);
      return;
    }
    const Call along = rooted(whole, root.host);
    const auto make = [&](size_t i) {
      if (first_inside) pass_on(i);
      return rail_->plan_broadcast(along, chunk_of(data, i, chunks, 1));
    };
    run_on_rail(along, chunks, make, [&](size_t i) {
      if (!first_inside) pass_on(i);
    });
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
    const auto make = [&](size_t i) {
      const std::vector<Span> chunk = chunk_of(outputs, i % chunks, chunks, 1);
      // Inside the host everything at once, before any of it is carried.
      if (i < chunks) local_->all_gather(whole, chunk_of(input, i, chunks, 1), map_.of_this_host(chunk));
      return rail_->plan_all_gather(whole, map_.on_this_rail(i / chunks, chunk));
    };
    // Each rank then gives the others of its host what its rail brought, one host after the other.
    run_on_rail(whole, map_.waves() * chunks, make, [&](size_t i) {
      const std::vector<Span> chunk = chunk_of(outputs, i % chunks, chunks, 1);
      for (size_t host = 0; host < map_.hosts(); ++host) {
        if (host == map_.host()) continue;
        const std::vector<Span> parts = map_.carried_for(host, i / chunks, chunk);
        local_->all_gather(whole, parts[map_.place()], parts);
      }
    });
  });
}

void TwoLevelEngine::all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) {
  Messages outgoing(inputs.begin(), inputs.end());
  Messages incoming(outputs.begin(), outputs.end());
  for (size_t rank = 0; rank < map_.ranks(); ++rank) {
    if (!map_.is_here(static_cast<int>(rank))) continue;
    outgoing[rank].reset();
    incoming[rank].reset();
  }
  beside_a_round(call, outgoing, incoming,
                 [&] { local_->all_to_all(call, map_.of_this_host(inputs), map_.of_this_host(outputs)); });
}

void TwoLevelEngine::gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  with_root(call, /*to_root=*/true, input, outputs,
            [&](const Call& inside, const std::vector<Span>& parts) { local_->gather(inside, input, parts); });
}

void TwoLevelEngine::scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  with_root(call, /*to_root=*/false, output, inputs,
            [&](const Call& inside, const std::vector<Span>& parts) { local_->scatter(inside, parts, output); });
}

template <typename Body>
void TwoLevelEngine::with_root(const Call& call, bool to_root, Span mine, const std::vector<Span>& parts, Body&& body) {
  const HostMap::Seat root = map_.seat_of(call.root);
  const bool at_root = root.host == map_.host();
  const bool is_root = at_root && root.place == map_.place();
  // The root's side of the round and the others'; a rank has empty messages on the side that is not its own.
  Messages of_root(map_.ranks(), Span{}), of_others(map_.ranks(), Span{});
  if (is_root) of_root = from_elsewhere(parts);
  if (!at_root) of_others[static_cast<size_t>(call.root)] = mine;
  beside_a_round(call, to_root ? of_others : of_root, to_root ? of_root : of_others, [&] {
    if (at_root) body(rooted(call, root.place), is_root ? map_.of_this_host(parts) : std::vector<Span>{});
  });
}

Messages TwoLevelEngine::from_elsewhere(const std::vector<Span>& spans) const {
  Messages messages(spans.begin(), spans.end());
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (map_.is_here(static_cast<int>(rank))) messages[rank] = Span{};
  }
  return messages;
}

template <typename Body>
void TwoLevelEngine::beside_a_round(const Call& call, const Messages& outgoing, const Messages& incoming, Body&& body) {
  std::unique_ptr<Round> round;
  or_abort("", [&] { round = all_->transport().start(call, outgoing, incoming); });
  or_abort(parts_, body);
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
