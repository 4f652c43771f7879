#include "distributed/lanes.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cann::hccl {

struct Lanes::State {
  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable all_done;
  std::unordered_map<Key, std::deque<Task>> lanes;  // a lane is listed while a thread serves it or is about to
  std::deque<Key> ready;                            // lanes waiting for a thread
  std::vector<std::thread> threads;
  size_t idle = 0;
  bool closing = false;

  // The caller holds the lock. A lane that has tasks and no thread gets one.
  void hand_over(Key lane, const std::shared_ptr<State>& self) {
    ready.push_back(lane);
    if (ready.size() > idle) {
      threads.emplace_back([self] { self->serve(); });
    } else {
      work_ready.notify_one();
    }
  }

  void serve();
  void finish_lane(Key lane) {
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

void Lanes::State::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    ++idle;
    work_ready.wait(lock, [this] { return !ready.empty() || closing; });
    --idle;
    if (ready.empty()) return;
    const Key lane = ready.front();
    ready.pop_front();
    while (!lanes[lane].empty()) {
      Task task = std::move(lanes[lane].front());
      lanes[lane].pop_front();
      lock.unlock();
      run_task({this, lane}, task);
      task = nullptr;  // what it captured dies outside the lock
      lock.lock();
    }
    finish_lane(lane);
  }
}

Lanes::Lanes() : state_(std::make_shared<State>()) {}

Lanes::~Lanes() { close(); }

void Lanes::post(Key lane, Task task) {
  if (t_serving == Serving{state_.get(), lane}) return run_task(t_serving, task);
  std::unique_lock lock(state_->mutex);
  if (state_->closing) {
    lock.unlock();
    task();
    return;
  }
  const auto [entry, idle] = state_->lanes.try_emplace(lane);
  entry->second.push_back(std::move(task));
  if (idle) state_->hand_over(lane, state_);
}

bool Lanes::try_run(Key lane, const Task& task) {
  {
    std::lock_guard lock(state_->mutex);
    // Listed from here on, so that what is posted meanwhile waits its turn.
    if (!state_->lanes.try_emplace(lane).second) return false;
  }
  run_task({state_.get(), lane}, task);
  std::lock_guard lock(state_->mutex);
  if (state_->lanes[lane].empty()) {
    state_->finish_lane(lane);
  } else {
    state_->hand_over(lane, state_);
  }
  return true;
}

void Lanes::run(Key lane, Task task) {
  if (!try_run(lane, task)) post(lane, std::move(task));
}

void Lanes::drain() {
  std::unique_lock lock(state_->mutex);
  if (t_serving.owner == state_.get()) return;
  state_->all_done.wait(lock, [this] { return state_->lanes.empty(); });
}

void Lanes::close() {
  drain();
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
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
