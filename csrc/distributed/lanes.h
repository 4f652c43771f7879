#pragma once
// Ordered lanes over a pool of threads: what stands in for the communication streams of a process group.
//
// Tasks posted to one lane run one after another, in the order of posting; different lanes run beside each other, each
// on a thread of its own, so a lane that waits for a peer never holds up another. A task that a task of the lane itself
// posts is part of that one and runs at once: callbacks of a collective's future wait for collectives of their own,
// which behind those that are queued would never start. All ranks meet it at the same place of their order.
// Threads are made when a lane has work and nobody is free, kept for later lanes, and joined by close(). All functions
// are thread-safe. No torch here.

#include <cstdint>
#include <functional>
#include <memory>

namespace cann::hccl {

class Lanes {
 public:
  using Key = uint64_t;
  using Task = std::function<void()>;  // must not throw

  Lanes();
  // close()
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Queues `task` on `lane` and returns. Within a task of the lane, and after close(), runs it at once instead.
  void post(Key lane, Task task);

  // As post(), for tasks that the caller is likely to wait for soon: if the lane is idle, it has no thread for some
  // hundred microseconds, in which whoever calls the helper runs the lane's tasks on its own thread until done() and so
  // saves two thread switches; afterwards a thread runs them as ever. Helping with a done() that holds already starts
  // such a thread now. The helper may outlive the lanes, and does nothing where there is nothing to help.
  using Helper = std::function<void(const std::function<bool()>& done)>;
  Helper post_deferred(Key lane, Task task);

  // Runs `task` on the calling thread if the lane is idle, which saves two thread switches; else as post().
  void run(Key lane, Task task);

  // Runs `task` on the calling thread and returns true if the lane is idle; else does nothing and returns false.
  bool try_run(Key lane, const Task& task);

  // Blocks until nothing is queued or running. Returns at once inside a task, which would wait for itself.
  void drain();

  // drain(), then ends the threads.
  void close();

 private:
  // False, with `task` untouched, where it is to be run at once.
  bool enqueue(Key lane, Task& task, bool deferred);

  struct State;  // shared with the threads, so that close() on a pool thread can leave that thread behind
  std::shared_ptr<State> state_;
};

}  // namespace cann::hccl
