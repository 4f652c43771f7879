#include "distributed/lanes.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cann::hccl {

namespace {

// How long a deferred lane waits for help. Long enough for a caller to come to its wait(), and that a thread which
// wakes up so often costs nothing; short against what peers can notice.
constexpr std::chrono::microseconds kGrace(500);

}  // namespace

struct Lanes::State : std::enable_shared_from_this<Lanes::State> {
  using Clock = std::chrono::steady_clock;
  struct Deferred {
    Key lane;
    Clock::time_point due;
  };

  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable all_done;
  std::unordered_map<Key, std::deque<Task>> lanes;  // a lane is listed while a thread serves it or is about to
  std::deque<Key> ready;                            // lanes waiting for a thread
  std::deque<Deferred> deferred;                    // lanes waiting for help until they are due, soonest first
  bool watched = false;                             // a thread looks after `deferred`
  bool recently_deferred = false;                   // since it looked last
  std::vector<std::thread> threads;
  size_t idle = 0;
  bool closing = false;

  // The caller holds the lock for all functions.

  // Sees to it that one more idle thread than `busy` looks around.
  void rouse(size_t busy) {
    if (busy >= idle) {
      threads.emplace_back([self = shared_from_this()] { self->serve(); });
    } else {
      work_ready.notify_one();
    }
  }
  // A lane that has tasks and no thread gets one.
  void hand_over(Key lane) {
    ready.push_back(lane);
    rouse(ready.size() - 1);
  }
  void defer(Key lane) {
    deferred.push_back({lane, Clock::now() + kGrace});
    recently_deferred = true;
    if (!watched) rouse(ready.size());
  }
  void start_due(Clock::time_point now) {
    while (!deferred.empty() && deferred.front().due <= now) {
      const Key lane = deferred.front().lane;
      deferred.pop_front();
      hand_over(lane);
    }
  }
  // Takes the lane from those that wait for help; false if it is none.
  bool claim(Key lane) {
    return std::erase_if(deferred, [lane](const Deferred& one) { return one.lane == lane; }) > 0;
  }

  void serve();
  void wait_for_lane(std::unique_lock<std::mutex>& lock);
  // Runs tasks of a lane on this thread until there are none or `done()`, then gives the lane up.
  void run_lane(std::unique_lock<std::mutex>& lock, Key lane, const std::function<bool()>& done);
  void help(Key lane, const std::function<bool()>& done);
  void give_up(Key lane) {
    if (!lanes[lane].empty()) return hand_over(lane);
    lanes.erase(lane);
    if (lanes.empty()) all_done.notify_all();
  }
};

namespace {
// The lane whose task this thread is running: waiting for it would be waiting for itself.
struct Serving {
  const void* owner = nullptr;
  Lanes::Key lane = 0;
  bool operator==(const Serving&) const = default;
};
thread_local Serving t_serving;

void run_task(const Serving& serving, const Lanes::Task& task) {
  const Serving outer = std::exchange(t_serving, serving);
  task();
  t_serving = outer;
}
}  // namespace

void Lanes::State::wait_for_lane(std::unique_lock<std::mutex>& lock) {
  ++idle;
  while (ready.empty() && !closing) {
    if (watched || !recently_deferred) {
      work_ready.wait(lock);
      continue;
    }
    // As long as lanes are deferred now and then, one thread looks after them at intervals: to be woken for each of
    // them would cost what deferring saves.
    watched = true;
    recently_deferred = !deferred.empty();
    --idle;
    lock.unlock();
    std::this_thread::sleep_for(kGrace);
    lock.lock();
    ++idle;
    watched = false;
    start_due(Clock::now());
  }
  --idle;
  if (!deferred.empty() && !watched && !ready.empty()) rouse(ready.size() - 1);  // this thread is busy now
}

void Lanes::State::run_lane(std::unique_lock<std::mutex>& lock, Key lane, const std::function<bool()>& done) {
  while (!lanes[lane].empty() && !done()) {
    Task task = std::move(lanes[lane].front());
    lanes[lane].pop_front();
    lock.unlock();
    run_task({this, lane}, task);
    task = nullptr;  // what it captured dies outside the lock
    lock.lock();
  }
  give_up(lane);
}

void Lanes::State::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    wait_for_lane(lock);
    if (ready.empty()) return;
    const Key lane = ready.front();
    ready.pop_front();
    run_lane(lock, lane, [] { return false; });
  }
}

void Lanes::State::help(Key lane, const std::function<bool()>& done) {
  std::unique_lock lock(mutex);
  if (claim(lane)) run_lane(lock, lane, done);
}

Lanes::Lanes() : state_(std::make_shared<State>()) {}

Lanes::~Lanes() { close(); }

bool Lanes::enqueue(Key lane, Task& task, bool deferred) {
  std::lock_guard lock(state_->mutex);
  if (state_->closing || t_serving == Serving{state_.get(), lane}) return false;
  const auto [entry, idle] = state_->lanes.try_emplace(lane);
  entry->second.push_back(std::move(task));
  if (idle && deferred) state_->defer(lane);
  if (idle && !deferred) state_->hand_over(lane);
  return true;
}

void Lanes::post(Key lane, Task task) {
  if (!enqueue(lane, task, /*deferred=*/false)) run_task({state_.get(), lane}, task);
}

Lanes::Helper Lanes::post_deferred(Key lane, Task task) {
  if (enqueue(lane, task, /*deferred=*/true)) {
    return [state = state_, lane](const std::function<bool()>& done) { state->help(lane, done); };
  }
  run_task({state_.get(), lane}, task);
  return [](const std::function<bool()>&) {};
}

bool Lanes::try_run(Key lane, const Task& task) {
  {
    std::lock_guard lock(state_->mutex);
    // Listed from here on, so that what is posted meanwhile waits its turn.
    if (!state_->lanes.try_emplace(lane).second) return false;
  }
  run_task({state_.get(), lane}, task);
  std::lock_guard lock(state_->mutex);
  state_->give_up(lane);
  return true;
}

void Lanes::run(Key lane, Task task) {
  if (!try_run(lane, task)) post(lane, std::move(task));
}

void Lanes::drain() {
  std::unique_lock lock(state_->mutex);
  if (t_serving.owner == state_.get()) return;
  state_->start_due(State::Clock::time_point::max());
  state_->all_done.wait(lock, [this] { return state_->lanes.empty(); });
}

void Lanes::close() {
  drain();
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->start_due(State::Clock::time_point::max());
    threads.swap(state_->threads);
  }
  state_->work_ready.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace cann::hccl
