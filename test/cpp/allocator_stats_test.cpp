// Tallies against PyTorch's definitions of current, peak, allocated and freed.

#include "runtime/allocator_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>

namespace cann {
namespace {

void expect_equal(const StatValue& actual, const StatValue& expected) {
  EXPECT_EQ(actual.current, expected.current);
  EXPECT_EQ(actual.peak, expected.peak);
  EXPECT_EQ(actual.allocated, expected.allocated);
  EXPECT_EQ(actual.freed, expected.freed);
}

// The definition, followed literally: a peak is renewed at every rise.
struct Reference {
  StatValue value;
  void add(int64_t amount) {
    value.current += amount;
    value.allocated += amount;
    value.peak = std::max(value.peak, value.current);
  }
  void remove(int64_t amount) {
    value.current -= amount;
    value.freed += amount;
  }
  void reset_peak() { value.peak = value.current; }
  void reset_accumulated() { value.allocated = value.freed = 0; }
};

TEST(Tally, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  Tally tally;
  Reference pools[2], all;
  for (int step = 0; step < 20000; ++step) {
    const size_t pool = random() % 2;
    const auto kind = static_cast<PoolKind>(pool);
    const unsigned action = random() % 1000;
    if (action == 0) {
      tally.reset_peak();
      for (Reference* reference : {&pools[0], &pools[1], &all}) reference->reset_peak();
    } else if (action == 1) {
      tally.reset_accumulated();
      for (Reference* reference : {&pools[0], &pools[1], &all}) reference->reset_accumulated();
    } else if (action < 520 || pools[pool].value.current == 0) {
      const auto amount = static_cast<int64_t>(1 + random() % 100);
      tally.add(kind, amount);
      pools[pool].add(amount);
      all.add(amount);
    } else {
      const auto amount = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(pools[pool].value.current));
      tally.remove(kind, amount);
      pools[pool].remove(amount);
      all.remove(amount);
    }
    if (step % 97 == 0) {
      expect_equal(tally.value(PoolKind::kSmall), pools[0].value);
      expect_equal(tally.value(PoolKind::kLarge), pools[1].value);
      expect_equal(tally.total(), all.value);
    }
  }
}

TEST(HeapStats, ResetsCoverEveryTallyAndCounter) {
  HeapStats stats;
  int tallies = 0;
  stats.for_each_tally([&](Tally& tally) {
    ++tallies;
    tally.add(PoolKind::kLarge, 10);
    tally.remove(PoolKind::kLarge, 4);
  });
  EXPECT_EQ(static_cast<size_t>(tallies) * sizeof(Tally), offsetof(HeapStats, num_alloc_retries))
      << "a tally is missing from for_each_tally()";
  stats.num_ooms = stats.num_alloc_retries = stats.num_device_alloc = 3;
  stats.reset_peak();
  stats.reset_accumulated();
  stats.for_each_tally([](const Tally& tally) { expect_equal(tally.total(), {6, 6, 0, 0}); });
  EXPECT_EQ(stats.num_ooms + stats.num_alloc_retries + stats.num_device_alloc, 0);
}

}  // namespace
}  // namespace cann
