// Posted operations: who gives does not wait, until there is no room; and ranks that disagree learn of it all the same.

#include <atomic>
#include <chrono>

#include "world.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;
constexpr uint8_t kBroadcast = 0, kAllReduce = 1, kReduce = 3, kBarrier = 15;

Call broadcast_call(uint64_t sequence, int root, DataType dtype = DataType::kUInt8) {
  return call_of(kBroadcast, sequence, dtype, Reduction::kNone, root);
}

// The errors that the ranks' bodies end in: "" where there was none.
std::vector<std::string> errors_of(World& world, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(world.size()));
  world.run([&](int rank) {
    try {
      body(rank);
    } catch (const EngineError& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
  });
  return errors;
}

bool any_has(const std::vector<std::string>& errors, const std::string& part) {
  return std::any_of(errors.begin(), errors.end(),
                     [&](const std::string& error) { return error.find(part) != std::string::npos; });
}

TEST(Posts, TheRootOfABroadcastDoesNotWaitAndMayChangeItsDataAtOnce) {
  World world(3);
  Buffers buffers(world, 0);
  const Span data = buffers.make(1000, Place::kHbm);
  for (uint64_t i = 1; i <= 20; ++i) {  // nobody else takes part yet
    fill(data, i, 0);
    world.engine(0).broadcast(broadcast_call(i, 0), data);
  }
  fill(data, 99, 0);
  world.run([&](int rank) {
    if (rank == 0) return;
    Buffers own(world, rank);
    const Span got = own.make(1000, Place::kHbm);
    for (uint64_t i = 1; i <= 20; ++i) {
      world.engine(rank).broadcast(broadcast_call(i, 0), got);
      for (size_t at = 0; at < got.bytes; ++at) ASSERT_EQ(got.data[at], pattern(i, 0, at)) << i << " at " << at;
    }
  });
}

TEST(Posts, WhoGivesToAReductionDoesNotWait) {
  World world(2);
  float one = 1, two = 2;
  const Call call = call_of(kReduce, 1, DataType::kFloat, Reduction::kSum, 0);
  world.engine(1).reduce(call, {reinterpret_cast<std::byte*>(&two), 4});
  two = 50;
  world.engine(0).reduce(call, {reinterpret_cast<std::byte*>(&one), 4});
  EXPECT_EQ(one, 3);
  EXPECT_EQ(two, 50);
}

// Room for records runs out with small contents, room for contents with large ones; sizes in between leave gaps.
TEST(Posts, AFastRootWaitsForRoomAndNothingIsLost) {
  for (const size_t bytes : {size_t{0}, size_t{5}, size_t{50'001}, kPostedBytes}) {
    constexpr uint64_t kOperations = 3 * kPosts;
    World world(3);
    std::atomic<uint64_t> given{0};
    world.run([&](int rank) {
      Buffers buffers(world, rank);
      const Span data = buffers.make(bytes, Place::kHbm);
      for (uint64_t i = 1; i <= kOperations; ++i) {
        if (rank == 0) fill(data, i, 0);
        if (rank == 2 && i == kPosts / 2) {  // sleeps until the root cannot go on
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          EXPECT_LT(given, i + kPosts);
          EXPECT_LE(given * bytes, (i - 1) * bytes + kPostBoxBytes);
        }
        world.engine(rank).broadcast(broadcast_call(i, 0), data);
        if (rank == 0) given = i;
        for (size_t at = 0; at < data.bytes; ++at) ASSERT_EQ(data.data[at], pattern(i, 0, at)) << i << " at " << at;
      }
    });
  }
}

TEST(Posts, RootsTakeTurns) {
  World world(4);
  world.run([&](int rank) {
    Buffers buffers(world, rank);
    const Span data = buffers.make(3000, Place::kForeign);
    for (uint64_t i = 1; i <= 5 * kPosts; ++i) {
      const int root = static_cast<int>(i * i % 4);
      if (rank == root) fill(data, i, root);
      world.engine(rank).broadcast(broadcast_call(i, root), data);
      for (size_t at = 0; at < data.bytes; ++at) ASSERT_EQ(data.data[at], pattern(i, root, at)) << i;
      if (i % 17 == 0) world.engine(rank).barrier(call_of(kBarrier, i));
    }
  });
}

TEST(Posts, ALeavingRootHasGivenAndARankThatNeverGivesIsNamed) {
  World world(2);
  Buffers buffers(world, 0), others(world, 1);
  const Span data = buffers.make(100, Place::kHbm), got = others.make(100, Place::kHbm);
  fill(data, 5, 0);
  world.engine(0).broadcast(broadcast_call(1, 0), data);
  world.engine(0).leave(Deadline(std::chrono::seconds(1)));
  world.engine(1).broadcast(broadcast_call(1, 0), got);
  EXPECT_EQ(bytes_of(got), bytes_of(data));
  try {
    world.engine(1).broadcast(broadcast_call(2, 0), got);
    FAIL() << "nothing was raised";
  } catch (const EngineError& error) {
    EXPECT_EQ(error.kind, Kind::kRemote);
    EXPECT_NE(std::string(error.what()).find("rank 0 has left the group"), std::string::npos) << error.what();
  }
}

TEST(Posts, ARootWithoutRoomNamesTheRankThatDoesNotTake) {
  World world(2);
  std::byte contents[8] = {};
  Call call = broadcast_call(1, 0);
  for (uint32_t i = 0; i < kPosts; ++i) world.engine(0).broadcast(call, {contents, 8});
  call.deadline = Deadline(std::chrono::milliseconds(200));
  try {
    world.engine(0).broadcast(call, {contents, 8});
    FAIL() << "nothing was raised";
  } catch (const EngineError& error) {
    EXPECT_EQ(error.kind, Kind::kTimeout);
    EXPECT_NE(std::string(error.what()).find("no answer from rank 1"), std::string::npos) << error.what();
  }
}

struct Disagreement {
  std::string name;
  std::function<void(Engine&, int, Span)> body;
  std::string text;
};

class PostsDisagreeTest : public ::testing::TestWithParam<Disagreement> {};

TEST_P(PostsDisagreeTest, RanksAreToldHow) {
  World world(3);
  const auto errors = errors_of(world, [&](int rank) {
    std::byte contents[64] = {};
    GetParam().body(world.engine(rank), rank, {contents, 8});
    world.engine(rank).barrier(call_of(kBarrier, 9));
  });
  EXPECT_TRUE(any_has(errors, GetParam().text)) << errors[0] << "\n" << errors[1] << "\n" << errors[2];
  for (const std::string& error : errors) EXPECT_NE(error, "");
}

std::vector<Disagreement> disagreements() {
  return {
      {"Root", [](Engine& engine, int rank, Span data) { engine.broadcast(broadcast_call(1, rank % 2), data); },
       "root 1"},
      {"EveryRankIsRoot", [](Engine& engine, int rank, Span data) { engine.broadcast(broadcast_call(1, rank), data); },
       "root 1"},
      {"WaitForEachOther",
       [](Engine& engine, int rank, Span data) { engine.broadcast(broadcast_call(1, (rank + 1) % 3), data); },
       "says it is in BROADCAST #1"},
      {"Size",
       [](Engine& engine, int rank, Span data) {
         engine.broadcast(broadcast_call(1, 0), {data.data, rank == 2 ? size_t{4} : size_t{8}});
       },
       "rank 2 is in BROADCAST #1 (4 bytes"},
      {"Type",
       [](Engine& engine, int rank, Span data) {
         engine.broadcast(broadcast_call(1, 0, rank == 1 ? DataType::kFloat : DataType::kInt32), data);
       },
       "Float"},
      {"Operation",
       [](Engine& engine, int rank, Span data) {
         if (rank == 1) return engine.broadcast(broadcast_call(1, 0), data);
         engine.all_reduce(call_of(kAllReduce, 1, DataType::kFloat, Reduction::kSum), data);
       },
       "rank 1 is in BROADCAST #1"},
      {"OneMore",
       [](Engine& engine, int rank, Span data) {
         if (rank == 0) engine.broadcast(broadcast_call(1, 0), data);
       },
       "have not done the same broadcasts and reductions"},
      {"OneMoreTaken",
       [](Engine& engine, int rank, Span data) {
         if (rank == 1) engine.broadcast(broadcast_call(1, 0), data);
       },
       "rank 1 is in BROADCAST #1"},
  };
}

INSTANTIATE_TEST_SUITE_P(Cases, PostsDisagreeTest, ::testing::ValuesIn(disagreements()),
                         [](const auto& info) { return info.param.name; });

TEST(Posts, RecordsThatMakeNoSenseAreRefused) {
  const std::vector<std::function<void(Post&)>> edits{
      [](Post& post) { post.offset = ~uint64_t{0} - 5; },
      [](Post& post) { post.bytes = uint64_t{1} << 62; },
      [](Post& post) { post.number = 7; },
      [](Post& post) { post.signature.op = 200; },
      [](Post& post) { post.history = 1; },
  };
  for (size_t i = 0; i < edits.size(); ++i) {
    World world(2);
    std::byte contents[8] = {};
    world.engine(1).broadcast(broadcast_call(1, 1), {contents, 8});
    edits[i](world.block().post_box(1).posts[1]);
    EXPECT_THROW(world.engine(0).broadcast(broadcast_call(1, 1), {contents, 8}), EngineError) << i;
  }
}

}  // namespace
}  // namespace cann::hccl
