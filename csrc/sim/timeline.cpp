#include "sim/timeline.h"

#include <algorithm>

namespace cann::sim {

double& RankClock::clock(unsigned stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1, 0.0);
  return streams_[stream];
}

double RankClock::launch(unsigned stream, double us, double host_us, Engine engine) {
  host_ += host_us;
  double& now = clock(stream);
  const double start = std::max(now, host_);
  if (stream == 0) {
    spent_.host_bound += start - now;
    (engine == Engine::kCube ? spent_.cube : engine == Engine::kCopy ? spent_.copy : spent_.vector) += us;
  }
  now = start + us;
  return start;
}

double RankClock::ready(unsigned stream, double host_us) {
  host_ += host_us;
  return std::max(clock(stream), host_);
}

void RankClock::wait(unsigned stream, const EventTime& event) {
  double& now = clock(stream);
  const double waited = event.time - now;
  if (waited <= 0) return;
  if (stream == 0) {
    const double moving = event.transfer ? std::min(waited, event.moving_us) : 0;
    spent_.exposed_collective += moving;
    (event.transfer ? spent_.late_rank : spent_.idle) += waited - moving;
  }
  now = event.time;
}

double RankClock::end() const {
  double end = host_;
  for (const double now : streams_) end = std::max(end, now);
  return end;
}

double Timeline::launch(Action action) {
  const std::lock_guard lock(mutex_);
  keep(action);
  return clock_.launch(action.stream, action.us, action.host_us, action.engine);
}

double Timeline::transfer(Action action) {
  const std::lock_guard lock(mutex_);
  keep(action);
  const int direction = action.kind == Action::kCollective ? 0 : static_cast<int>(action.value) * 2 + action.kind;
  double& lane = lanes_[{action.what, direction}];
  const double start = std::max(lane, clock_.ready(action.stream, action.host_us));
  lane = start + action.us;
  events_[action.event] = {.time = lane, .moving_us = action.us, .transfer = true};
  return start;
}

double Timeline::mark(uint32_t label) {
  const std::lock_guard lock(mutex_);
  keep({.kind = Action::kMark, .what = label});
  return clock_.end();
}

uint32_t Timeline::new_event() {
  const std::lock_guard lock(mutex_);
  events_.emplace_back();
  return static_cast<uint32_t>(events_.size() - 1);
}

uint32_t Timeline::record(unsigned stream) {
  const std::lock_guard lock(mutex_);
  events_.push_back({.time = std::max(clock_.now(stream), clock_.host())});
  const auto event = static_cast<uint32_t>(events_.size() - 1);
  keep({.kind = Action::kRecord, .stream = static_cast<uint16_t>(stream), .event = event});
  return event;
}

void Timeline::wait(unsigned stream, uint32_t event) {
  const std::lock_guard lock(mutex_);
  if (event == 0 || event >= events_.size()) return;
  clock_.wait(stream, events_[event]);
  keep({.kind = Action::kWait, .stream = static_cast<uint16_t>(stream), .event = event});
}

void Timeline::host_wait(uint32_t event) {
  const std::lock_guard lock(mutex_);
  if (event == 0 || event >= events_.size()) return;
  clock_.host_wait(events_[event].time);
  keep({.kind = Action::kHostWait, .event = event});
}

void Timeline::host_sync() {
  const std::lock_guard lock(mutex_);
  clock_.host_wait(clock_.end());
  keep({.kind = Action::kHostSync});
}

double Timeline::time_of(uint32_t event) const {
  const std::lock_guard lock(mutex_);
  return event < events_.size() ? events_[event].time : 0;
}

double Timeline::now(unsigned stream) const {
  const std::lock_guard lock(mutex_);
  return clock_.now(stream);
}

double Timeline::end() const {
  const std::lock_guard lock(mutex_);
  return clock_.end();
}

Spent Timeline::spent() const {
  const std::lock_guard lock(mutex_);
  return clock_.spent();
}

void Timeline::set_recording(bool on) {
  const std::lock_guard lock(mutex_);
  recording_ = on;
}

std::vector<Action> Timeline::actions() const {
  const std::lock_guard lock(mutex_);
  return actions_;
}

size_t Timeline::action_count() const {
  const std::lock_guard lock(mutex_);
  return actions_.size();
}

void Timeline::reset() {
  const std::lock_guard lock(mutex_);
  clock_ = {};
  events_.assign(1, {});
  lanes_.clear();
  actions_.clear();
}

}  // namespace cann::sim
