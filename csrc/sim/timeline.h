#pragma once
// Virtual time of a rank: the clocks of its host thread and of its streams, and the list of actions that moved them.
//
// An action is what a rank does to its device: launch an operator, start a collective, send, wait. RankClock says when
// each happens. Timeline is one rank's clock and list, filled while a program runs; replay() takes the lists of several
// ranks and finds when things happen once collectives wait for their last rank and receives for their sender.
// Times are microseconds since the start. Torch-free. Timeline is thread-safe, the others belong to one thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sim/cost_model.h"

namespace cann::sim {

struct Action {
  enum Kind : uint8_t {
    kLaunch,      // what: operator; us: its device time
    kRecord,      // event: takes the time of `stream`
    kWait,        // `stream` waits for `event`
    kHostWait,    // the host waits for `event`
    kHostSync,    // the host waits for all streams
    kCollective,  // what: group; event: its end; value: bytes
    kSend,        // what: group; value: peer's global rank; tag: see below; event: its end
    kReceive,
    kMark,  // what: label
  };
  Kind kind = kLaunch;
  Engine engine = Engine::kNone;  // of kLaunch
  uint16_t stream = 0;
  Collective collective = Collective::kPointToPoint;  // of kCollective, kSend and kReceive
  uint8_t reserved[3] = {};
  uint32_t what = 0;
  uint32_t event = 0;
  uint32_t site = 0;  // call site, an index of the program's table
  float us = 0;       // device time
  float host_us = 0;  // time the host takes to issue it
  int64_t value = 0;
  int64_t allocated = 0;  // bytes of HBM in live blocks afterwards
};
static_assert(sizeof(Action) == 48);

// Where the time of the compute stream (stream 0) went, in microseconds.
struct Spent {
  double cube = 0, vector = 0, copy = 0;
  double exposed_collective = 0;  // waiting for bytes that move
  double late_rank = 0;           // waiting for other ranks: pipeline bubble, imbalance
  double host_bound = 0;          // idle because the host had not issued the next operator
  double idle = 0;                // waiting for other streams of this rank
};

// End of something that can be waited for.
struct EventTime {
  double time = 0;
  double moving_us = 0;  // of a transfer: how long bytes moved until then
  bool transfer = false;
};

class RankClock {
 public:
  // Start of the operator.
  double launch(unsigned stream, double us, double host_us, Engine engine);
  double now(unsigned stream) const { return stream < streams_.size() ? streams_[stream] : 0; }
  // The moment from which `stream` can hand data over: the host has issued it and earlier work is done.
  double ready(unsigned stream, double host_us);
  void wait(unsigned stream, const EventTime& event);
  void host_wait(double time) { host_ = host_ < time ? time : host_; }
  double end() const;
  double host() const { return host_; }
  const Spent& spent() const { return spent_; }

 private:
  double& clock(unsigned stream);

  double host_ = 0;
  std::vector<double> streams_;
  Spent spent_;
};

// One rank's program as it runs, with peers taken to be on time.
class Timeline {
 public:
  // Each appends an action; the first three return its start.
  double launch(Action action);
  double transfer(Action action);  // kCollective, kSend, kReceive
  double mark(uint32_t label);
  uint32_t new_event();
  uint32_t record(unsigned stream);
  void wait(unsigned stream, uint32_t event);
  void host_wait(uint32_t event);
  void host_sync();
  // Time of a recorded event or a transfer's end, 0 for one that has none.
  double time_of(uint32_t event) const;
  double now(unsigned stream) const;
  double end() const;
  Spent spent() const;

  // Actions are kept only while recording; clocks always run.
  void set_recording(bool on);
  std::vector<Action> actions() const;
  size_t action_count() const;
  void reset();

 private:
  void keep(const Action& action) {
    if (recording_) actions_.push_back(action);
  }

  mutable std::mutex mutex_;  // guards what follows
  RankClock clock_;
  std::vector<EventTime> events_{EventTime{}};  // event 0 is never used
  std::map<std::pair<uint32_t, int>, double> lanes_;
  std::vector<Action> actions_;
  bool recording_ = false;
};

// What one rank did, for replay().
struct RankTrace {
  int rank = 0;  // global
  std::span<const Action> actions;
  // Per group index of the actions: a name equal on all ranks, and which ranks of this replay are members.
  std::vector<std::string> groups = {};
  std::vector<std::vector<int>> members = {};
};

struct RankResult {
  std::vector<double> start;  // per action
  std::vector<double> end;
  Spent spent;
  std::vector<std::pair<uint32_t, double>> marks;  // label, time
  std::vector<Spent> spent_at_mark;
};

// Throws std::runtime_error naming the rank and operation when ranks wait for each other for ever: a receive without a
// send, or a collective that one of its members never starts.
std::vector<RankResult> replay(std::span<const RankTrace> ranks);

}  // namespace cann::sim
