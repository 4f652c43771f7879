#pragma once
// How long an operation waits for other ranks, apart from moving bytes: what profiles tell late ranks from slow links
// by.
//
// Whoever blocks until a peer comes does so in a Waiting; who runs an operation that is to be measured has a WaitMeter
// round it. Between hosts only messages without contents, and the first of an operation, can be told from bytes on
// their way, so only these count as waited for. Belongs to one thread; without a meter, a Waiting costs one load. No
// torch here.

#include <chrono>
#include <optional>

namespace cann::hccl {

class WaitMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // Measures on the calling thread until destroyed. Meters must not be nested.
  WaitMeter();
  ~WaitMeter();
  WaitMeter(const WaitMeter&) = delete;
  WaitMeter& operator=(const WaitMeter&) = delete;

  // The thread's; nullptr if nobody measures.
  static WaitMeter* current();

  // All that was waited for.
  Clock::duration waited() const { return waited_; }
  // The part of it before all ranks of the operation had come; all of it where they never meet.
  Clock::duration synchronization() const { return synchronization_.value_or(waited_); }
  bool synchronized() const { return synchronization_.has_value(); }

  // The ranks of the operation have met. Counts the first time.
  void meet() {
    if (!synchronization_) synchronization_ = waited_;
  }
  void add(Clock::duration time) { waited_ += time; }

 private:
  Clock::duration waited_{0};
  std::optional<Clock::duration> synchronization_;
};

// Adds its life to the thread's meter.
class Waiting {
 public:
  explicit Waiting(bool counts = true) : meter_(counts ? WaitMeter::current() : nullptr) {
    if (meter_ != nullptr) start_ = WaitMeter::Clock::now();
  }
  ~Waiting() {
    if (meter_ != nullptr) meter_->add(WaitMeter::Clock::now() - start_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaitMeter* const meter_;
  WaitMeter::Clock::time_point start_;
};

// The ranks of the thread's operation have met.
inline void ranks_have_met() {
  if (WaitMeter* meter = WaitMeter::current()) meter->meet();
}

}  // namespace cann::hccl
