#pragma once
// Which work of which stream is known to be done before what: vector clocks over streams and the host.
//
// Each launch is an epoch of its stream. A stream knows the epochs of other streams that it has waited for; an event
// carries what its stream knew when it was recorded; the host knows what it has waited for, and so does every stream at
// its next launch. All threads of the host are one here, which can hide a race between threads and never invents one.
// Not thread-safe.

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace cann {

class StreamOrder {
 public:
  // What is known: the latest epoch that is done, by stream number. Missing ones are 0.
  using Clock = std::vector<uint64_t>;

  // Streams are numbered when they are first named. `key` identifies a stream in the process.
  size_t number(uint64_t key) {
    const auto [it, fresh] = numbers_.try_emplace(key, clocks_.size());
    if (fresh) clocks_.emplace_back();
    return it->second;
  }

  // The epoch of a launch on `stream`.
  uint64_t launch(size_t stream) {
    Clock& clock = clock_of(stream);
    if (clock.size() <= stream) clock.resize(stream + 1);
    return ++clock[stream];
  }
  // What is done when `stream` has done all it was given.
  const Clock& recorded(size_t stream) { return clock_of(stream); }
  void wait(size_t stream, const Clock& event) { join(clock_of(stream), event); }
  void host_wait(const Clock& event) { join(host_, event); }
  // The host waits for all streams.
  void host_wait_all() {
    for (const Clock& clock : clocks_) join(host_, clock);
  }

  // Whether what `stream` launches next comes after `epoch` of `other`.
  bool ordered(size_t stream, size_t other, uint64_t epoch) { return at(clock_of(stream), other) >= epoch; }
  // Whether everything to come does.
  bool host_knows(size_t other, uint64_t epoch) const { return at(host_, other) >= epoch; }

 private:
  static uint64_t at(const Clock& clock, size_t stream) { return stream < clock.size() ? clock[stream] : 0; }
  static void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
  }
  Clock& clock_of(size_t stream) {
    join(clocks_[stream], host_);
    return clocks_[stream];
  }

  std::unordered_map<uint64_t, size_t> numbers_;
  std::vector<Clock> clocks_;
  Clock host_;
};

}  // namespace cann
