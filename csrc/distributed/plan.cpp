#include "distributed/plan.h"

#include <algorithm>
#include <utility>

namespace cann::hccl {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kKeptBytes = size_t{64} << 20;
constexpr size_t kAlignment = 64;
// Ticks that a round has to come in. With one, a peer would hear that it may send its next message only behind all of
// this rank's own bytes, and its side of the link would lie idle meanwhile.
constexpr size_t kRoundsAhead = 2;

// A plan on its way.
struct Running {
  Plan plan;
  std::unique_ptr<Round> round;  // of step `next` - 1
  size_t next = 0;

  bool over() const { return next == plan.size(); }
  void start(Transport& transport, const Call& call) {
    Step& step = plan[next++];
    if (step.before) step.before();
    round = transport.start(call, step.outgoing, step.incoming);
  }
  void finish() {
    const std::vector<double> factors = round->finish();
    round.reset();
    if (const Step& step = plan[next - 1]; step.after) step.after(factors);
  }
};

}  // namespace

size_t bytes_sent(const Plan& plan, int rank) {
  size_t bytes = 0;
  for (const Step& step : plan) {
    for (size_t peer = 0; peer < step.outgoing.size(); ++peer) {
      if (step.outgoing[peer] && peer != static_cast<size_t>(rank)) bytes += step.outgoing[peer]->bytes;
    }
  }
  return bytes;
}

Span Scratch::take(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && sizes_[block_] - used_ < rounded) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    sizes_.push_back(std::max(rounded, kBlockBytes));
    blocks_.emplace_back(new std::byte[sizes_.back()]);  // not zeroed
  }
  std::byte* const data = blocks_[block_].get() + used_;
  used_ += rounded;
  return {data, bytes};
}

void Scratch::reset() {
  block_ = 0;
  used_ = 0;
  size_t total = 0;
  for (const size_t size : sizes_) total += size;
  if (total <= kKeptBytes) return;
  blocks_.clear();
  sizes_.clear();
}

void run_plans(Transport& transport, const Call& call, size_t count, const std::function<Plan(size_t)>& make,
               const std::function<void(size_t)>& done) {
  // At each tick one more plan starts, and a plan whose round was started kRoundsAhead ticks before moves on by a step:
  // rounds are finished in the order in which they were started.
  std::vector<Running> plans(count);
  size_t finished = 0;
  for (size_t tick = 0; finished < count; ++tick) {
    if (tick < count) {
      plans[tick].plan = make(tick);
      if (!plans[tick].over()) plans[tick].start(transport, call);
    }
    // Of plans that move on at a tick, the younger comes first, as it did when its round was started.
    for (size_t age = kRoundsAhead; age <= tick; age += kRoundsAhead) {
      const size_t i = tick - age;
      if (i >= count) continue;
      if (i < finished) break;
      if (plans[i].round) plans[i].finish();
      if (!plans[i].over()) plans[i].start(transport, call);
    }
    while (finished < std::min(tick, count) && plans[finished].over() && !plans[finished].round) done(finished++);
  }
}

void run_plan(Transport& transport, const Call& call, Plan plan) {
  run_plans(
      transport, call, 1, [&](size_t) { return std::move(plan); }, [](size_t) {});
}

}  // namespace cann::hccl
