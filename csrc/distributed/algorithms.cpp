#include "distributed/algorithms.h"

#include <algorithm>
#include <utility>

#include "distributed/reduction.h"

namespace cann::hccl {
namespace {

Messages none(int n) { return Messages(static_cast<size_t>(n)); }
size_t at(int rank) { return static_cast<size_t>(rank); }
int modulo(int value, int n) { return (value % n + n) % n; }

// out = parts[0] op parts[1] op ..., of all ranks if `last`, else of some: the division of a mean is left to the last.
void combine(const Call& call, int n, bool last, const std::vector<Span>& parts, const std::vector<double>& factors,
             Span out) {
  const bool undivided = call.reduction == Reduction::kAverage && !last;
  std::vector<const std::byte*> in;
  for (const Span& part : parts) in.push_back(part.data);
  reduce_in_order(undivided ? Reduction::kSum : call.reduction, call.dtype, in, factors, {out.data},
                  out.bytes / element_bytes(call.dtype), /*stream=*/false, call.divisor > 0 ? call.divisor : n);
}

// A part for each rank of the size of `mine`: `mine` itself for this rank, room to receive into for the others.
std::vector<Span> inbox_for(int rank, int n, Span mine, Scratch& scratch) {
  std::vector<Span> parts;
  for (int peer = 0; peer < n; ++peer) parts.push_back(peer == rank ? mine : scratch.take(mine.bytes));
  return parts;
}

Messages to_each(const std::vector<Span>& spans) { return {spans.begin(), spans.end()}; }

// One round of whole parts: everybody sends outgoing[p] to p, and reduces what comes into `output`.
Plan reduce_directly(const Call& call, int rank, int n, const std::vector<Span>& outgoing, Span output,
                     Scratch& scratch) {
  const std::vector<Span> parts = inbox_for(rank, n, outgoing[at(rank)], scratch);
  Step step{{}, to_each(outgoing), to_each(parts), {}};
  step.after = [=](const std::vector<double>& factors) { combine(call, n, /*last=*/true, parts, factors, output); };
  return {std::move(step)};
}

Plan ring_reduce_scatter(const Call& call, int rank, int n, const std::vector<Span>& inputs, Span output,
                         Scratch& scratch) {
  size_t largest = 0;
  for (const Span& input : inputs) largest = std::max(largest, input.bytes);
  const Span rooms[2] = {scratch.take(largest), scratch.take(largest)};
  Plan plan;
  Span partial = inputs[at(modulo(rank - 1, n))];  // what has been gathered of the slice that goes on
  for (int s = 0; s < n - 1; ++s) {
    Step step{{}, none(n), none(n), {}};
    const Span own = inputs[at(modulo(rank - 2 - s, n))];
    const Span received{rooms[s % 2].data, own.bytes};
    step.outgoing[at(modulo(rank + 1, n))] = partial;
    step.incoming[at(modulo(rank - 1, n))] = received;
    const bool last = s == n - 2;
    step.after = [=](const std::vector<double>&) {
      combine(call, n, last, {received, own}, {}, last ? output : received);
    };
    partial = received;
    plan.push_back(std::move(step));
  }
  return plan;
}

Plan ring_all_gather(int rank, int n, const std::vector<Span>& parts) {
  Plan plan;
  for (int s = 0; s < n - 1; ++s) {
    Step step{{}, none(n), none(n), {}};
    step.outgoing[at(modulo(rank + 1, n))] = parts[at(modulo(rank - s, n))];
    step.incoming[at(modulo(rank - 1, n))] = parts[at(modulo(rank - s - 1, n))];
    plan.push_back(std::move(step));
  }
  return plan;
}

Plan halving_doubling(const Call& call, int rank, int n, Span data, Scratch& scratch) {
  const std::vector<Span> slices = slices_of(data, call.dtype, n);
  // Slices [first, first + count) as one span.
  const auto range = [&](int first, int count) {
    const Span last = slices[at(first + count - 1)];
    std::byte* const begin = slices[at(first)].data;
    return Span{begin, static_cast<size_t>(last.data + last.bytes - begin)};
  };
  Plan plan;
  for (int distance = n / 2; distance > 0; distance /= 2) {  // halving
    const int partner = rank ^ distance;
    const Span kept = range(rank & ~(distance - 1), distance);
    const Span received = scratch.take(kept.bytes);
    Step step{{}, none(n), none(n), {}};
    step.outgoing[at(partner)] = range(partner & ~(distance - 1), distance);
    step.incoming[at(partner)] = received;
    step.after = [=](const std::vector<double>&) {
      const auto parts = rank < partner ? std::vector<Span>{kept, received} : std::vector<Span>{received, kept};
      combine(call, n, /*last=*/distance == 1, parts, {}, kept);
    };
    plan.push_back(std::move(step));
  }
  for (int distance = 1; distance < n; distance *= 2) {  // doubling
    const int partner = rank ^ distance;
    Step step{{}, none(n), none(n), {}};
    step.outgoing[at(partner)] = range(rank & ~(distance - 1), distance);
    step.incoming[at(partner)] = range(partner & ~(distance - 1), distance);
    plan.push_back(std::move(step));
  }
  return plan;
}

// Distances of a binomial tree over n ranks, the nearest first.
std::vector<int> tree_distances(int n) {
  std::vector<int> distances;
  for (int distance = 1; distance < n; distance *= 2) distances.push_back(distance);
  return distances;
}

// The way down of a binomial tree over ranks counted from `root`.
void add_way_down(Plan& plan, int rank, int n, int root, Span data) {
  const int place = modulo(rank - root, n);
  auto distances = tree_distances(n);
  std::reverse(distances.begin(), distances.end());
  for (const int distance : distances) {
    Step step{{}, none(n), none(n), {}};
    if (place % (2 * distance) == 0 && place + distance < n) step.outgoing[at(modulo(rank + distance, n))] = data;
    if (place % (2 * distance) == distance) step.incoming[at(modulo(rank - distance, n))] = data;
    plan.push_back(std::move(step));
  }
}

Plan tree_all_reduce(const Call& call, int rank, int n, Span data, Scratch& scratch) {
  Plan plan;
  const auto distances = tree_distances(n);
  for (const int distance : distances) {
    Step step{{}, none(n), none(n), {}};
    if (rank % (2 * distance) == distance) step.outgoing[at(rank - distance)] = data;
    if (rank % (2 * distance) == 0 && rank + distance < n) {
      const Span received = scratch.take(data.bytes);
      const bool last = distance == distances.back();  // only rank 0 comes so far
      step.incoming[at(rank + distance)] = received;
      step.after = [=](const std::vector<double>&) { combine(call, n, last, {data, received}, {}, data); };
    }
    plan.push_back(std::move(step));
  }
  add_way_down(plan, rank, n, /*root=*/0, data);
  return plan;
}

}  // namespace

std::vector<Span> slices_of(Span whole, DataType dtype, int n) {
  const size_t item = element_bytes(dtype);
  std::vector<Span> slices;
  for (int rank = 0; rank < n; ++rank) {
    const Slice slice = slice_of(whole.bytes / item, rank, n);
    slices.push_back({whole.data + slice.begin * item, (slice.end - slice.begin) * item});
  }
  return slices;
}

Plan all_reduce_plan(Algorithm algorithm, const Call& call, int rank, int n, Span data, Scratch& scratch) {
  if (algorithm == Algorithm::kHalvingDoubling) return halving_doubling(call, rank, n, data, scratch);
  if (algorithm == Algorithm::kTree) return tree_all_reduce(call, rank, n, data, scratch);
  if (algorithm == Algorithm::kWhole) {
    return reduce_directly(call, rank, n, std::vector<Span>(at(n), data), data, scratch);
  }
  const std::vector<Span> slices = slices_of(data, call.dtype, n);
  Plan plan = reduce_scatter_plan(algorithm, call, rank, n, slices, slices[at(rank)], scratch);
  for (Step& step : all_gather_plan(algorithm, rank, n, slices)) plan.push_back(std::move(step));
  return plan;
}

Plan reduce_plan(Algorithm algorithm, const Call& call, int rank, int n, Span data, Scratch& scratch) {
  const bool is_root = rank == call.root;
  Step to_root{{}, none(n), none(n), {}};
  if (algorithm == Algorithm::kWhole) {
    to_root.outgoing.assign(at(n), Span{});
    to_root.incoming.assign(at(n), Span{});
    if (!is_root) {
      to_root.outgoing[at(call.root)] = data;
      return {std::move(to_root)};
    }
    const std::vector<Span> parts = inbox_for(rank, n, data, scratch);
    to_root.incoming = to_each(parts);
    to_root.after = [=](const std::vector<double>& factors) { combine(call, n, /*last=*/true, parts, factors, data); };
    return {std::move(to_root)};
  }
  const std::vector<Span> slices = slices_of(data, call.dtype, n);
  const Span sum = is_root ? slices[at(rank)] : scratch.take(slices[at(rank)].bytes);
  Plan plan = reduce_directly(call, rank, n, slices, sum, scratch);
  if (is_root) to_root.incoming = to_each(slices);
  if (!is_root) to_root.outgoing[at(call.root)] = sum;
  plan.push_back(std::move(to_root));
  return plan;
}

Plan reduce_scatter_plan(Algorithm algorithm, const Call& call, int rank, int n, const std::vector<Span>& inputs,
                         Span output, Scratch& scratch) {
  if (algorithm == Algorithm::kRing) return ring_reduce_scatter(call, rank, n, inputs, output, scratch);
  return reduce_directly(call, rank, n, inputs, output, scratch);
}

Plan all_gather_plan(Algorithm algorithm, int rank, int n, const std::vector<Span>& parts) {
  if (algorithm == Algorithm::kRing) return ring_all_gather(rank, n, parts);
  return {Step{{}, Messages(at(n), parts[at(rank)]), to_each(parts), {}}};
}

Plan broadcast_plan(Algorithm algorithm, int rank, int n, int root, Span data) {
  const bool direct = algorithm != Algorithm::kTree;
  Step meeting{{}, Messages(at(n), Span{}), Messages(at(n), Span{}), {}};
  if (direct && rank == root) meeting.outgoing.assign(at(n), data);
  if (direct && rank != root) meeting.incoming[at(root)] = data;
  Plan plan{std::move(meeting)};
  if (!direct) add_way_down(plan, rank, n, root, data);
  return plan;
}

}  // namespace cann::hccl
