// HBM: segments, capacity, what a release gives back, and hosts that limit address space.

#include "sim/hbm.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <system_error>

#include "sim/host_memory.h"

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSegment = kSegmentGranularity;

TEST(Hbm, SegmentsAreAlignedZeroedAndOnTheirCard) {
  Hbm hbm(3, 64 * kMiB, /*huge_pages=*/false);
  for (int card = 0; card < 3; ++card) {
    auto* ptr = static_cast<unsigned char*>(hbm.reserve(card, kSegment));
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % kSegment, 0u);
    EXPECT_TRUE(hbm.contains(ptr));
    EXPECT_TRUE(hbm.contains(ptr + kSegment - 1));
    EXPECT_EQ(hbm.card_of(ptr), card);
    EXPECT_EQ(hbm.card_of(ptr + kSegment - 1), card);
    EXPECT_EQ(ptr[0] | ptr[kSegment - 1], 0);
  }
  const int local = 0;
  EXPECT_FALSE(hbm.contains(&local));
  EXPECT_FALSE(hbm.contains(reinterpret_cast<void*>(hbm.end())));
}

TEST(Hbm, CapacityIsPerCardAndExact) {
  Hbm hbm(2, 5 * kMiB, false);
  EXPECT_EQ(hbm.capacity(), 5 * kMiB);
  EXPECT_NE(hbm.reserve(0, 2 * kSegment), nullptr);
  EXPECT_EQ(hbm.reserve(0, kSegment), nullptr);  // 1 MiB is left
  EXPECT_EQ(hbm.used(0), 4 * kMiB);
  EXPECT_EQ(hbm.used(1), 0u);
  EXPECT_NE(hbm.reserve(1, kSegment), nullptr);
  EXPECT_EQ(hbm.reserve(1, size_t{1} << 62), nullptr);
  EXPECT_EQ(hbm.reserve(1, 0), nullptr);
}

TEST(Hbm, ChargesCountAgainstTheCard) {
  Hbm hbm(1, 8 * kMiB, false);
  EXPECT_TRUE(hbm.charge(0, 5 * kMiB));
  EXPECT_FALSE(hbm.charge(0, 4 * kMiB));
  EXPECT_EQ(hbm.reserve(0, 2 * kSegment), nullptr);
  EXPECT_NE(hbm.reserve(0, kSegment), nullptr);
  hbm.discharge(0, 5 * kMiB);
  EXPECT_EQ(hbm.used(0), kSegment);
}

TEST(Hbm, LowestAddressIsReusedAndNeighboursCoalesce) {
  Hbm hbm(1, 64 * kMiB, false);
  void* a = hbm.reserve(0, kSegment);
  void* b = hbm.reserve(0, kSegment);
  void* c = hbm.reserve(0, kSegment);
  EXPECT_LT(a, b);
  hbm.release(0, a, kSegment);
  hbm.release(0, b, kSegment);
  EXPECT_EQ(hbm.reserve(0, 2 * kSegment), a);  // a and b became one range
  hbm.release(0, c, kSegment);
  hbm.release(0, a, 2 * kSegment);
  EXPECT_EQ(hbm.used(0), 0u);
  EXPECT_EQ(hbm.reserve(0, 64 * kMiB), a);
}

TEST(Hbm, AddressFragmentationDoesNotLimit) {
  Hbm hbm(1, 32 * kMiB, false);
  std::vector<void*> all;
  for (int i = 0; i < 16; ++i) all.push_back(hbm.reserve(0, kSegment));
  for (size_t i = 0; i < all.size(); i += 2) hbm.release(0, all[i], kSegment);
  EXPECT_NE(hbm.reserve(0, 8 * kSegment), nullptr);  // half the card, though no hole is that long
}

TEST(Hbm, ReleaseReturnsPagesAndZeroes) {
  Hbm hbm(1, 64 * kMiB, false);
  void* ptr = hbm.reserve(0, 4 * kSegment);
  EXPECT_EQ(untouched_bytes(ptr, 4 * kSegment), 4 * kSegment);
  std::memset(ptr, 0xff, 4 * kSegment);
  EXPECT_EQ(untouched_bytes(ptr, 4 * kSegment), 0u);
  hbm.release(0, ptr, 4 * kSegment);
  EXPECT_EQ(untouched_bytes(ptr, 4 * kSegment), 4 * kSegment);
  auto* again = static_cast<unsigned char*>(hbm.reserve(0, 4 * kSegment));
  ASSERT_EQ(again, ptr);
  EXPECT_EQ(again[0] | again[4 * kSegment - 1], 0);
}

TEST(Hbm, ForkedChildDoesNotTouchItsParentsMemory) {
  Hbm hbm(1, 64 * kMiB, false);
  auto* ptr = static_cast<char*>(hbm.reserve(0, kSegment));
  ptr[0] = 'p';
  const pid_t child = fork();
  if (child == 0) {
    const bool inherited = ptr[0] == 'p';
    ptr[0] = 'c';
    hbm.release(0, ptr, kSegment);
    _exit(inherited ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ptr[0], 'p');
}

// Runs `action` in a process that may map `limit` bytes on top of what it has; exits with what it returns.
template <typename Action>
void exit_under_address_limit(size_t limit, Action action) {
  size_t pages = 0;
  if (FILE* statm = fopen("/proc/self/statm", "r")) {
    if (fscanf(statm, "%zu", &pages) != 1) _exit(100);
    fclose(statm);
  }
  const size_t bytes = pages * static_cast<size_t>(getpagesize()) + limit;
  const rlimit value{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &value) != 0) _exit(101);
  _exit(action());
}

TEST(HbmDeathTest, TakesLessAddressSpaceWhereTheHostIsStrict) {
  constexpr size_t kCapacity = 1024 * kMiB;
  const auto stride_factor = [] { return static_cast<int>(Hbm(2, kCapacity, false).stride() / kCapacity); };
  EXPECT_EXIT(exit_under_address_limit(10 * kCapacity, stride_factor), testing::ExitedWithCode(4), "");
  EXPECT_EXIT(exit_under_address_limit(5 * kCapacity, stride_factor), testing::ExitedWithCode(2), "");
  EXPECT_EXIT(exit_under_address_limit(3 * kCapacity, stride_factor), testing::ExitedWithCode(1), "");
}

TEST(HbmDeathTest, SaysWhatToDoWhenAddressSpaceIsRefused) {
  const auto message = [] {
    try {
      const Hbm hbm(2, 1024 * kMiB, false);
    } catch (const std::system_error& error) {
      fprintf(stderr, "%s", error.what());
      return 7;
    }
    return 0;
  };
  EXPECT_EXIT(exit_under_address_limit(1024 * kMiB, message), testing::ExitedWithCode(7),
              "2 simulated NPUs.*TORCH_CANN_HBM_MB.*ulimit");
}

}  // namespace
}  // namespace cann::sim
