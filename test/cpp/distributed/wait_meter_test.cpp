// What an operation waits for other ranks, told from what it takes.

#include "distributed/wait_meter.h"

#include <array>
#include <chrono>

#include "world.h"

namespace cann::hccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kLate = 60ms;
constexpr size_t kElements = 100'000;

// What two ranks measure when the second one comes late.
std::vector<std::array<WaitMeter::Clock::duration, 2>> waits_of(
    const std::function<void(World&, int, Span)>& operation) {
  World world(2);
  std::vector<std::array<WaitMeter::Clock::duration, 2>> waits(2);
  world.run([&](int rank) {
    Buffers buffers(world, rank);
    const Span data = buffers.make(kElements * sizeof(float), Place::kHbm);
    fill_numbers(data, DataType::kFloat, kElements, rank);
    if (rank == 1) std::this_thread::sleep_for(kLate);
    const WaitMeter meter;
    operation(world, rank, data);
    waits[static_cast<size_t>(rank)] = {meter.synchronization(), meter.waited()};
  });
  return waits;
}

TEST(WaitMeter, TheEarlyRankOfACollectiveWaits) {
  const auto waits = waits_of([](World& world, int rank, Span data) {
    world.engine(rank).all_reduce(call_of(1, kElements, DataType::kFloat, Reduction::kSum), data);
  });
  EXPECT_GE(waits[0][0], kLate / 2);
  EXPECT_LT(waits[1][0], waits[0][0]);
  for (const auto& [synchronization, waited] : waits) EXPECT_GE(waited, synchronization);
}

TEST(WaitMeter, AReceiverWaitsForItsSender) {
  const auto waits = waits_of([](World& world, int rank, Span data) {
    const Call call = call_of(1, kElements, DataType::kFloat, Reduction::kNone);
    auto transfer = rank == 0 ? world.engine(rank).recv(call, data, 1, 0) : world.engine(rank).send(call, data, 0, 0);
    transfer->wait();
  });
  EXPECT_GE(waits[0][0], kLate / 2);
  EXPECT_EQ(waits[0][0], waits[0][1]);  // who never meets all ranks waits only for them to come
}

TEST(WaitMeter, MeasuresNothingWithoutOne) {
  EXPECT_EQ(WaitMeter::current(), nullptr);
  {
    const WaitMeter meter;
    EXPECT_EQ(WaitMeter::current(), &meter);
    { const Waiting not_counted(false); }
    EXPECT_EQ(meter.waited(), WaitMeter::Clock::duration::zero());
    EXPECT_FALSE(meter.synchronized());
    ranks_have_met();
    EXPECT_TRUE(meter.synchronized());
  }
  EXPECT_EQ(WaitMeter::current(), nullptr);
}

}  // namespace
}  // namespace cann::hccl
