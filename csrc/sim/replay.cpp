// replay(): several ranks' lists of actions brought onto one time axis.

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "sim/shared_links.h"
#include "sim/timeline.h"

namespace cann::sim {
namespace {

// One end of a transfer that has started on its own rank.
struct Arrival {
  size_t rank;  // index among the replayed ranks
  size_t action;
  double time;
  double us;
};

struct RankState {
  RankClock clock;
  NetworkCard network;
  size_t next = 0;
  std::vector<std::optional<EventTime>> events;
  std::vector<uint64_t> collectives;                                // per group, how many were started
  std::map<std::tuple<uint32_t, int64_t, int>, uint64_t> messages;  // group, peer, direction -> count
  std::map<std::tuple<uint32_t, int64_t, int>, double> lanes;
};

class Replay {
 public:
  // `topology` nullptr: nothing is shared.
  explicit Replay(std::span<const RankTrace> traces, const Topology* topology = nullptr,
                  std::span<const std::vector<double>> shares = {})
      : traces_(traces), topology_(topology), shares_(shares), states_(traces.size()), results_(traces.size()) {
    for (size_t i = 0; i < traces.size(); ++i) {
      index_of_[traces[i].rank] = i;
      states_[i].collectives.resize(traces[i].groups.size());
      results_[i].start.resize(traces[i].actions.size());
      results_[i].end.resize(traces[i].actions.size());
    }
  }

  std::vector<RankResult> run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < traces_.size(); ++i) {
        while (states_[i].next < traces_[i].actions.size() && step(i)) progress = true;
      }
    }
    for (size_t i = 0; i < traces_.size(); ++i) {
      if (states_[i].next < traces_[i].actions.size()) raise_stuck(i);
      results_[i].spent = states_[i].clock.spent();
    }
    return std::move(results_);
  }

 private:
  using Message = std::tuple<std::string, int, int, uint64_t>;  // group, sender, receiver, number

  // Carries out the rank's next action; false if it has to wait for another rank.
  bool step(size_t i) {
    RankState& state = states_[i];
    const Action& action = traces_[i].actions[state.next];
    double start = state.clock.now(action.stream);
    switch (action.kind) {
      case Action::kLaunch:
        start = state.clock.launch(action.stream, action.us, action.host_us, action.engine);
        results_[i].end[state.next] = start + action.us;
        break;
      case Action::kRecord:
        set_event(state, action.event, {.time = std::max(start, state.clock.host())});
        break;
      case Action::kWait:
      case Action::kHostWait: {
        const std::optional<EventTime> event = event_of(state, action.event);
        if (!event) return false;
        action.kind == Action::kWait ? state.clock.wait(action.stream, *event) : state.clock.host_wait(event->time);
        break;
      }
      case Action::kHostSync:
        state.clock.host_wait(state.clock.end());
        break;
      case Action::kCollective:
      case Action::kSend:
      case Action::kReceive:
        start_transfer(i, action);
        ++state.next;
        return true;
      case Action::kMark:
        results_[i].marks.emplace_back(action.what, state.clock.end());
        results_[i].spent_at_mark.push_back(state.clock.spent());
        break;
    }
    results_[i].start[state.next] = start;
    ++state.next;
    return true;
  }

  static std::optional<EventTime> event_of(const RankState& state, uint32_t event) {
    return event < state.events.size() ? state.events[event] : std::nullopt;
  }
  static void set_event(RankState& state, uint32_t event, EventTime time) {
    if (event >= state.events.size()) state.events.resize(std::max<size_t>(event + 1, state.events.size() * 2));
    state.events[event] = time;
  }

  void start_transfer(size_t i, const Action& action) {
    RankState& state = states_[i];
    const Arrival arrival{i, state.next, state.clock.ready(action.stream, action.host_us), action.us};
    const RankTrace& trace = traces_[i];
    if (action.kind == Action::kCollective) {
      auto& arrivals = collectives_[{trace.groups[action.what], state.collectives[action.what]++}];
      arrivals.push_back(arrival);
      if (arrivals.size() >= std::max<size_t>(1, trace.members[action.what].size())) finish(arrivals);
      return;
    }
    const int direction = action.kind == Action::kSend ? 0 : 1;
    const uint64_t number = state.messages[{action.what, action.value, direction}]++;
    const int peer = static_cast<int>(action.value);
    if (!index_of_.contains(peer)) {  // a peer that is not replayed is on time
      std::vector<Arrival> alone{arrival};
      return finish(alone);
    }
    const Message message = direction == 0 ? Message{trace.groups[action.what], trace.rank, peer, number}
                                           : Message{trace.groups[action.what], peer, trace.rank, number};
    auto& ends = messages_[message];
    ends.push_back(arrival);
    if (ends.size() == 2) {
      finish(ends);
      messages_.erase(message);
    }
  }

  // All ends of a transfer are there: it starts when the last lane is free.
  void finish(std::vector<Arrival>& arrivals) {
    double start = 0, us = 0;
    for (const Arrival& arrival : arrivals) {
      start = std::max({start, arrival.time, lane_of(arrival)});
      us = std::max(us, arrival.us);
    }
    us = share_network(arrivals, start, us);
    for (const Arrival& arrival : arrivals) {
      const Action& action = traces_[arrival.rank].actions[arrival.action];
      lane_of(arrival) = start + us;
      set_event(states_[arrival.rank], action.event, {.time = start + us, .moving_us = us, .transfer = true});
      results_[arrival.rank].start[arrival.action] = start;
      results_[arrival.rank].end[arrival.action] = start + us;
    }
    arrivals.clear();
  }

  // What the transfer takes beside those that need the same network cards.
  double share_network(const std::vector<Arrival>& arrivals, double start, double us) {
    if (topology_ == nullptr) return us;
    double delay = 0;
    for (const Arrival& arrival : arrivals) {
      const auto [needed, direction] = network_of(arrival, us);
      delay = std::max(delay, states_[arrival.rank].network.delay(start, needed, direction));
    }
    for (const Arrival& arrival : arrivals) {
      const auto [needed, direction] = network_of(arrival, us);
      if (needed > 0) states_[arrival.rank].network.take(start, start + needed + delay, direction);
    }
    return us + delay;
  }

  // For how long of `us` a rank's network card is needed, and in which direction.
  std::pair<double, NetworkCard::Direction> network_of(const Arrival& arrival, double us) const {
    const Action& action = traces_[arrival.rank].actions[arrival.action];
    if (action.kind == Action::kCollective) return {us * shares_[arrival.rank][action.what], NetworkCard::kBoth};
    const int here = traces_[arrival.rank].rank, there = static_cast<int>(action.value);
    const bool away = topology_->domain_of(here) != topology_->domain_of(there);
    return {away ? us : 0, action.kind == Action::kSend ? NetworkCard::kOut : NetworkCard::kIn};
  }

  double& lane_of(const Arrival& arrival) {
    const Action& action = traces_[arrival.rank].actions[arrival.action];
    const bool collective = action.kind == Action::kCollective;
    return states_[arrival.rank].lanes[{action.what, collective ? -1 : action.value, action.kind}];
  }

  [[noreturn]] void raise_stuck(size_t i) const {
    const Action& action = traces_[i].actions[states_[i].next];
    throw std::runtime_error(fmt::format(
        "rank {} waits for ever at action {} of {} (event {}): its peer never starts the matching send, receive "
        "or collective. Two ranks that each wait for their own send to end before they receive block each "
        "other, as they do on the device",
        traces_[i].rank, states_[i].next, traces_[i].actions.size(), action.event));
  }

  std::span<const RankTrace> traces_;
  const Topology* topology_;
  std::span<const std::vector<double>> shares_;
  std::vector<RankState> states_;
  std::vector<RankResult> results_;
  std::map<int, size_t> index_of_;
  std::map<std::pair<std::string, uint64_t>, std::vector<Arrival>> collectives_;
  std::map<Message, std::vector<Arrival>> messages_;
};

}  // namespace

std::vector<RankResult> replay(std::span<const RankTrace> ranks) { return Replay(ranks).run(); }

std::vector<RankResult> replay(std::span<const RankTrace> ranks, const Topology& topology,
                               std::span<const std::vector<double>> shares) {
  return Replay(ranks, &topology, shares).run();
}

}  // namespace cann::sim
