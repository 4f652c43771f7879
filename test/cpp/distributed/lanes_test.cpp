// The order in which tasks of communication streams run, and what happens to them at the end.

#include "distributed/lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace cann::hccl {
namespace {

constexpr auto kLong = std::chrono::seconds(10);

// Holds whoever waits for it until it is opened.
class Gate {
 public:
  void open() { promise_.set_value(); }
  bool wait() const { return future_.wait_for(kLong) == std::future_status::ready; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_{promise_.get_future()};
};

// What tasks have written down, in that order.
class Log {
 public:
  void add(int what) {
    std::lock_guard lock(mutex_);
    entries_.push_back(what);
  }
  void clear() {
    std::lock_guard lock(mutex_);
    entries_.clear();
  }
  std::vector<int> entries() const {
    std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> entries_;
};

TEST(Lanes, TasksOfALaneRunInTheOrderOfPosting) {
  Lanes lanes;
  Log logs[3];
  std::vector<int> expected;
  for (int i = 0; i < 500; ++i) {
    expected.push_back(i);
    for (Lanes::Key lane = 0; lane < 3; ++lane) {
      lanes.post(lane, [&log = logs[lane], i] { log.add(i); });
    }
  }
  lanes.drain();
  for (const Log& log : logs) EXPECT_EQ(log.entries(), expected);
}

TEST(Lanes, ALaneThatWaitsHoldsUpNoOther) {
  Lanes lanes;
  Gate gate;
  std::atomic<bool> passed{false};
  lanes.post(1, [&] { passed = gate.wait(); });
  lanes.post(2, [&] { gate.open(); });
  lanes.drain();
  EXPECT_TRUE(passed);
}

TEST(Lanes, WhatATaskPostsToItsOwnLaneRunsAtOnce) {
  Lanes lanes;
  Gate queued;
  Log log;
  lanes.post(1, [&] {
    EXPECT_TRUE(queued.wait());
    log.add(1);
    lanes.post(1, [&] {
      log.add(2);
      lanes.post(1, [&] { log.add(3); });
      log.add(4);
    });
    log.add(5);
  });
  lanes.post(1, [&] { log.add(6); });
  queued.open();
  lanes.drain();
  EXPECT_EQ(log.entries(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST(Lanes, WhatATaskPostsToAnotherLaneWaitsItsTurnThere) {
  Lanes lanes;
  Gate posted;
  Log log;
  lanes.post(2, [&] {
    EXPECT_TRUE(posted.wait());
    log.add(1);
  });
  lanes.post(1, [&] {
    lanes.post(2, [&] { log.add(2); });
    posted.open();
  });
  lanes.drain();
  EXPECT_EQ(log.entries(), (std::vector<int>{1, 2}));
}

TEST(Lanes, RunTakesTheCallingThreadIfTheLaneIsIdle) {
  Lanes lanes;
  std::thread::id served_by;
  const auto note = [&] { served_by = std::this_thread::get_id(); };
  lanes.run(1, note);
  EXPECT_EQ(served_by, std::this_thread::get_id());

  Gate gate;
  lanes.post(1, [&] { EXPECT_TRUE(gate.wait()); });
  lanes.run(1, note);
  EXPECT_FALSE(lanes.try_run(1, [] { FAIL() << "the lane is busy"; }));
  gate.open();
  lanes.drain();
  EXPECT_NE(served_by, std::this_thread::get_id());
  EXPECT_TRUE(lanes.try_run(1, note));
  EXPECT_EQ(served_by, std::this_thread::get_id());
}

TEST(Lanes, WhatIsPostedDuringRunIsServedAfterIt) {
  Lanes lanes;
  Log log;
  lanes.run(1, [&] {
    std::thread([&] { lanes.post(1, [&] { log.add(2); }); }).join();
    log.add(1);
  });
  lanes.drain();
  EXPECT_EQ(log.entries(), (std::vector<int>{1, 2}));
}

TEST(Lanes, WhoHelpsRunsTheTasksBeforeItsOwnToo) {
  Lanes lanes;
  Log log;
  std::thread::id served_by;
  Lanes::Helper help;
  // A thread of the lanes may come first when this one is held up for long: then it is tried again.
  for (int i = 0; i < 100 && served_by != std::this_thread::get_id(); ++i) {
    lanes.drain();
    log.clear();
    std::atomic<bool> done{false};
    lanes.post_deferred(1, [&] { log.add(1); });
    help = lanes.post_deferred(1, [&] {
      served_by = std::this_thread::get_id();
      log.add(2);
      done = true;
    });
    lanes.post_deferred(1, [&] { log.add(3); });
    help([&] { return done.load(); });
    lanes.drain();
    EXPECT_EQ(log.entries(), (std::vector<int>{1, 2, 3}));
  }
  EXPECT_EQ(served_by, std::this_thread::get_id());
}

TEST(Lanes, DeferredTasksRunWithoutHelp) {
  Lanes lanes;
  for (int i = 0; i < 3; ++i) {  // also when nobody looks after deferred lanes any more
    Gate first, second;
    lanes.post_deferred(1, [&] { EXPECT_TRUE(second.wait()); });
    lanes.post_deferred(2, [&] { first.open(); });
    EXPECT_TRUE(first.wait());
    second.open();
    lanes.drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * i));
  }
}

TEST(Lanes, AHelperMayStartALaneAndOutliveTheLanes) {
  Lanes::Helper help;
  {
    Lanes lanes;
    Gate started;
    help = lanes.post_deferred(1, [&] { started.open(); });
    help([] { return true; });
    EXPECT_TRUE(started.wait());
  }
  help([] { return false; });
}

TEST(Lanes, DeferringHelpingAndPostingFromManyThreadsLosesNothing) {
  constexpr int kThreads = 4, kTasks = 2000;
  Lanes lanes;
  std::atomic<int> run{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i) {
        const auto lane = static_cast<Lanes::Key>((thread + i) % 3);
        std::atomic<bool> done{false};
        const auto help = lanes.post_deferred(lane, [&] {
          ++run;
          done = true;
          done.notify_all();
        });
        if (i % 4 != 0) help([&] { return i % 4 == 1 || done.load(); });
        if (i % 16 == 0) lanes.post(lane, [] {});
        done.wait(false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(run, kThreads * kTasks);
}

TEST(Lanes, DrainWithinATaskReturnsAtOnce) {
  Lanes lanes;
  Gate other;
  Log log;
  lanes.post(2, [&] { EXPECT_TRUE(other.wait()); });
  lanes.post(1, [&] {
    lanes.drain();
    log.add(1);
    other.open();
  });
  lanes.drain();
  EXPECT_EQ(log.entries(), std::vector<int>{1});
}

TEST(Lanes, CloseRunsWhatIsLeftAndThenEachTaskAtOnce) {
  Lanes lanes;
  Gate gate;
  Log log;
  lanes.post(1, [&] { EXPECT_TRUE(gate.wait()); });
  for (int i = 0; i < 5; ++i) lanes.post(1, [&, i] { log.add(i); });
  std::thread opener([&] { gate.open(); });
  lanes.close();
  opener.join();
  EXPECT_EQ(log.entries(), (std::vector<int>{0, 1, 2, 3, 4}));
  lanes.post(1, [&] { log.add(5); });
  EXPECT_EQ(log.entries().back(), 5);
  lanes.close();
}

TEST(Lanes, ATaskMayCloseItsLanes) {
  auto lanes = std::make_unique<Lanes>();
  Gate closed;
  lanes->post(1, [&] {
    lanes.reset();
    closed.open();
  });
  EXPECT_TRUE(closed.wait());
}

}  // namespace
}  // namespace cann::hccl
