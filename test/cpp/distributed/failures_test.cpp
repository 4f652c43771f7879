// Peers that disagree, die, leave, never come, or write nonsense: an error that says so, in time, and never a crash.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "world.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;
using Clock = std::chrono::steady_clock;

// The error `body` raises; a failure of the test if it raises none.
EngineError error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const EngineError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was raised";
  return {Kind::kAborted, ""};
}

void expect_text(const EngineError& error, const std::string& part) {
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

Call sum_of_floats(std::chrono::milliseconds allowed = std::chrono::seconds(20)) {
  Call call = call_of(1, 1, DataType::kFloat, Reduction::kSum);
  call.deadline = Deadline(allowed);
  return call;
}

TEST(Failures, RanksThatDisagreeFindOutBeforeAnythingMoves) {
  World world(3);
  world.run([&](int rank) {
    Buffers buffers(world, rank);
    const Span data = buffers.make(rank == 2 ? 8 : 4, Place::kHbm);
    fill(data, 1, rank);
    const auto before = bytes_of(data);
    const EngineError error = error_of([&] { world.engine(rank).all_reduce(sum_of_floats(), data); });
    EXPECT_EQ(error.kind, Kind::kMismatch);
    expect_text(error,
                rank == 2 ? "rank 0 says it is in ALLREDUCE #1 (4 bytes" : "rank 2 says it is in ALLREDUCE #1 (8");
    EXPECT_EQ(bytes_of(data), before);
    EXPECT_TRUE(world.engine(rank).aborted());
    EXPECT_EQ(error_of([&] { world.engine(rank).barrier(call_of(15, 2)); }).kind, Kind::kAborted);
  });
}

TEST(Failures, ARankThatNeverComesIsNamedAtTheDeadline) {
  World world(3);
  world.run([&](int rank) {
    if (rank == 1) return;
    const auto started = Clock::now();
    const EngineError error = error_of([&] {
      world.engine(rank).all_reduce(sum_of_floats(std::chrono::milliseconds(300)),
                                    Buffers(world, rank).make(4, Place::kHbm));
    });
    EXPECT_LT(Clock::now() - started, std::chrono::seconds(2));
    if (error.kind == Kind::kTimeout) {
      expect_text(error, "no answer from rank 1");
    } else {
      expect_text(error, "gave up: no answer from rank 1");  // the other one's deadline was first
    }
  });
}

TEST(Failures, ARankThatLeftIsAnErrorForThoseWhoWaitForIt) {
  World world(2);
  world.run([&](int rank) {
    world.engine(rank).barrier(call_of(15, 1));
    if (rank == 1) return world.engine(rank).leave(Deadline(std::chrono::seconds(1)));
    const EngineError error = error_of([&] { world.engine(rank).barrier(call_of(15, 2)); });
    EXPECT_EQ(error.kind, Kind::kRemote);
    expect_text(error, "rank 1 has left the group");
  });
}

TEST(Failures, AMessageOfALeavingRankStillArrives) {
  World world(2);
  const Call send = call_of(12, 1), receive = call_of(13, 1);
  Buffers first(world, 0), second(world, 1);
  const Span data = first.make(1000, Place::kHbm), room = second.make(1000, Place::kHbm);
  fill(data, 5, 0);
  world.engine(0).send(send, data, 1, 0)->wait();
  world.engine(0).leave(Deadline(std::chrono::seconds(1)));
  world.engine(1).recv(receive, room, 0, 0)->wait();
  EXPECT_EQ(bytes_of(room), bytes_of(data));
}

TEST(Failures, AnEagerSendIsDoneAtOnceAndItsDataBelongsToTheCaller) {
  World world(2);
  Buffers first(world, 0), second(world, 1);
  const Span data = first.make(kEagerBytes, Place::kHbm), room = second.make(kEagerBytes, Place::kHbm);
  fill(data, 5, 0);
  const auto expected = bytes_of(data);
  world.engine(0).send(call_of(12, 1), data, 1, 0)->wait();
  fill(data, 6, 0);
  world.engine(1).recv(call_of(13, 1), room, 0, 0)->wait();
  EXPECT_EQ(bytes_of(room), expected);
}

TEST(Failures, AnEagerSendWithoutRoomNamesItsReceiver) {
  World world(2);
  const Span data = Buffers(world, 0).make(kEagerBytes, Place::kHbm);
  world.engine(0).send(call_of(12, 1), data, 1, 0)->wait();
  Call late = call_of(12, 2);
  late.deadline = Deadline(std::chrono::milliseconds(200));
  const EngineError error = error_of([&] { world.engine(0).send(late, data, 1, 0)->wait(); });
  EXPECT_EQ(error.kind, Kind::kTimeout);
  expect_text(error, "no answer from rank 1");
}

// Plays rank 1 of two by hand: writes an announcement as `edit` leaves it, and arrives at the barrier.
void announce_by_hand(const World& world, const std::function<void(Announcement&)>& edit) {
  const ControlBlock block = world.block();
  Announcement& announcement = block.announcement(1, 1);
  announcement.signature = {
      1, 1 << 20, 1.0, -1, 1, static_cast<uint8_t>(DataType::kFloat), static_cast<uint8_t>(Reduction::kSum), 0};
  announcement.where = Where::kHbm;
  announcement.regions = 1;
  announcement.region_list()[0] = {0, 1 << 20};
  edit(announcement);
  block.state(1).step.store(1);
  if (block.control().arrivals.fetch_add(1) == 1) block.control().generation.raise();
}

TEST(Failures, AnnouncementsThatMakeNoSenseAreRefused) {
  const std::vector<std::function<void(Announcement&)>> edits{
      [](Announcement& a) { a.region_list()[0].offset = ~uint64_t{0} - 5; },
      [](Announcement& a) { a.region_list()[0].offset = uint64_t{1} << 62; },
      [](Announcement& a) { a.region_list()[0].bytes = ~uint64_t{0}; },
      [](Announcement& a) { a.regions = 0; },
      [](Announcement& a) { a.regions = 1 << 30; },
      [](Announcement& a) { a.where = static_cast<Where>(77); },
      [](Announcement& a) { a.where = Where::kInline; },
      [](Announcement& a) { a.signature.op = 200; },
      [](Announcement& a) { a.signature.dtype = 200; },
  };
  for (size_t i = 0; i < edits.size(); ++i) {
    World world(2);
    world.run([&](int rank) {
      if (rank == 1) return announce_by_hand(world, edits[i]);
      // `kInline` in the place of HBM leaves a rank waiting for a barrier that does not come.
      const EngineError error = error_of([&] {
        world.engine(0).all_reduce(sum_of_floats(std::chrono::milliseconds(200)),
                                   Buffers(world, 0).make(1 << 20, Place::kHbm));
      });
      EXPECT_NE(std::string(error.what()), "") << i;
    });
  }
}

TEST(Failures, AKilledProcessIsNoticedAtOnce) {
  sim::Hbm hbm(1, World::kHbmBytes, false);
  hbm.share();
  auto memory = std::make_shared<SharedMemory>(SharedMemory::create("torch_cann_test", ControlBlock::bytes_for(2)));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ProcessId id;
  id.pid = child;
  id.start_time = start_time_of(child);
  const auto peer = PeerProcess::find(id);
  EXPECT_EQ(PeerProcess::find(id), peer);
  EXPECT_FALSE(peer->has_ended());
  EXPECT_EQ(peer->hbm(0, 1), nullptr) << "it has announced none";
  ShmEngine engine(ControlBlock(memory->data(), 2), memory, 0, {nullptr, peer}, &hbm);

  std::thread killer([child] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kill(child, SIGKILL);
  });
  float number = 1;
  const auto started = Clock::now();
  const EngineError error = error_of([&] {
    engine.all_reduce(sum_of_floats(), {reinterpret_cast<std::byte*>(&number), 4});
  });
  EXPECT_LT(Clock::now() - started, std::chrono::seconds(2));
  EXPECT_EQ(error.kind, Kind::kRemote);
  expect_text(error, "the process of rank 1 (pid " + std::to_string(child) + ") has ended");
  killer.join();
  waitpid(child, nullptr, 0);

  id.start_time += 1;
  EXPECT_THROW(PeerProcess::find(id), std::runtime_error) << "another process with the same number";
}

TEST(Failures, MemoryThatIsNotWhatWasAnnouncedIsRefused) {
  const SharedMemory memory = SharedMemory::create("torch_cann_test", 4096);
  MemoryId id = memory.id();
  close(open_memory(id));
  id.inode += 1;
  EXPECT_THROW(open_memory(id), std::runtime_error);
  id = memory.id();
  id.bytes = 8192;
  EXPECT_THROW(open_memory(id), std::runtime_error);
  id = memory.id();
  id.fd = 0;  // the terminal, a pipe
  EXPECT_THROW(open_memory(id), std::runtime_error);
}

TEST(Scale, SixtyFourRanks) {
  World world(64);
  for (const size_t elements : {size_t{3}, size_t{20'000}}) {
    const Call call = sum_of_floats();
    const auto expected = expected_reduction(call, elements, 64, elements * 4);
    world.run([&](int rank) {
      Buffers buffers(world, rank);
      const Span data = buffers.make(elements * 4, Place::kHbm);
      fill_numbers(data, call.dtype, elements, rank);
      world.engine(rank).all_reduce(call, data);
      EXPECT_EQ(bytes_of(data), expected);
      for (int i = 0; i < 20; ++i) world.engine(rank).barrier(call_of(15, 2));
    });
  }
}

}  // namespace
}  // namespace cann::hccl
