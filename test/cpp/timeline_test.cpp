// Virtual time of one rank, and of several that wait for each other.

#include "sim/timeline.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace cann::sim {
namespace {

Action launch(float us, float host_us = 0, uint16_t stream = 0) {
  return {.kind = Action::kLaunch, .engine = Engine::kCube, .stream = stream, .us = us, .host_us = host_us};
}
Action transfer(Action::Kind kind, uint32_t event, float us, int64_t peer = 0) {
  return {.kind = kind, .event = event, .us = us, .value = peer};
}
Action wait(uint32_t event) { return {.kind = Action::kWait, .event = event}; }

TEST(Timeline, OperatorsOfAStreamFollowEachOther) {
  Timeline t;
  EXPECT_EQ(t.launch(launch(10)), 0);
  EXPECT_EQ(t.launch(launch(5)), 10);
  EXPECT_EQ(t.end(), 15);
  EXPECT_EQ(t.spent().cube, 15);
}

TEST(Timeline, ASlowHostLeavesTheDeviceIdle) {
  Timeline t;
  for (int i = 0; i < 10; ++i) t.launch(launch(2, 8));
  EXPECT_DOUBLE_EQ(t.end(), 82);
  EXPECT_DOUBLE_EQ(t.spent().host_bound, 8 + 9 * 6);
}

TEST(Timeline, StreamsOverlapUntilOneWaits) {
  Timeline t;
  t.launch(launch(10, 0, 1));
  const uint32_t event = t.record(1);
  EXPECT_EQ(t.launch(launch(4)), 0);
  t.wait(0, event);
  EXPECT_EQ(t.launch(launch(1)), 10);
  EXPECT_DOUBLE_EQ(t.spent().idle, 6);
}

TEST(Timeline, OnlyTheWaitedPartOfACollectiveIsExposed) {
  Timeline t;
  const uint32_t event = t.new_event();
  t.transfer(transfer(Action::kCollective, event, 30));
  t.launch(launch(20));
  t.wait(0, event);
  EXPECT_EQ(t.now(0), 30);
  EXPECT_DOUBLE_EQ(t.spent().exposed_collective, 10);
}

TEST(Timeline, CollectivesOfAGroupQueueUp) {
  Timeline t;
  const uint32_t first = t.new_event(), second = t.new_event();
  t.transfer(transfer(Action::kCollective, first, 30));
  t.transfer(transfer(Action::kCollective, second, 30));
  EXPECT_EQ(t.time_of(second), 60);
}

TEST(Replay, ACollectiveStartsWithItsLastRank) {
  const std::vector<Action> fast{launch(10), transfer(Action::kCollective, 1, 5), wait(1)};
  const std::vector<Action> slow{launch(40), transfer(Action::kCollective, 1, 5), wait(1)};
  const std::vector<RankTrace> ranks{{.rank = 0, .actions = fast, .groups = {"g"}, .members = {{0, 1}}},
                                     {.rank = 1, .actions = slow, .groups = {"g"}, .members = {{0, 1}}}};
  const auto results = replay(ranks);
  EXPECT_EQ(results[0].start[1], 40);
  EXPECT_EQ(results[0].end[1], 45);
  EXPECT_DOUBLE_EQ(results[0].spent.late_rank, 30);
  EXPECT_DOUBLE_EQ(results[0].spent.exposed_collective, 5);
  EXPECT_DOUBLE_EQ(results[1].spent.late_rank, 0);
}

TEST(Replay, AReceiveWaitsForItsSender) {
  // Two stages, two micro-batches, forward only: the second starts when the first has sent.
  const std::vector<Action> first{launch(10), transfer(Action::kSend, 1, 2, 1), launch(10),
                                  transfer(Action::kSend, 2, 2, 1)};
  const std::vector<Action> second{transfer(Action::kReceive, 1, 2, 0), wait(1), launch(10),
                                   transfer(Action::kReceive, 2, 2, 0), wait(2), launch(10)};
  const std::vector<RankTrace> ranks{{.rank = 0, .actions = first, .groups = {"w"}, .members = {{0, 1}}},
                                     {.rank = 1, .actions = second, .groups = {"w"}, .members = {{0, 1}}}};
  const auto results = replay(ranks);
  EXPECT_EQ(results[1].start[2], 12);
  EXPECT_EQ(results[1].start[5], 24);  // sent at 20, moved in 2; computing until 22
  // Posted at 0, sent at 10: ten of the twelve waited for were for the rank, two for the bytes.
  EXPECT_DOUBLE_EQ(results[1].spent.late_rank, 10);
}

TEST(Replay, AReceiveWithoutASendIsReported) {
  const std::vector<Action> lonely{transfer(Action::kReceive, 1, 2, 1), wait(1)};
  const std::vector<Action> silent{launch(1)};
  const std::vector<RankTrace> ranks{{.rank = 0, .actions = lonely, .groups = {"w"}, .members = {{0, 1}}},
                                     {.rank = 1, .actions = silent, .groups = {"w"}, .members = {{0, 1}}}};
  EXPECT_THROW(replay(ranks), std::runtime_error);
}

TEST(Replay, AgreesWithTheTimelineOfOneRank) {
  Timeline t;
  t.set_recording(true);
  t.launch(launch(10, 3));
  const uint32_t event = t.new_event();
  t.transfer(transfer(Action::kCollective, event, 30));
  t.launch(launch(7, 3));
  t.wait(0, event);
  t.launch(launch(1, 3));
  t.mark(5);
  const auto actions = t.actions();
  const std::vector<RankTrace> ranks{{.rank = 0, .actions = actions, .groups = {"g"}, .members = {{0}}}};
  const auto results = replay(ranks);
  EXPECT_DOUBLE_EQ(results[0].marks.at(0).second, t.end());
  EXPECT_DOUBLE_EQ(results[0].spent.exposed_collective, t.spent().exposed_collective);
}

}  // namespace
}  // namespace cann::sim
