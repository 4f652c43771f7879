// HBM that other processes can map: what is shared, what stays as it was, and what a child of fork() sees.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <system_error>

#include "sim/hbm.h"

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSegment = kSegmentGranularity;

char* reserve(Hbm& hbm, int card, size_t bytes = kSegment) { return static_cast<char*>(hbm.reserve(card, bytes)); }

TEST(SharedHbm, OnlyWhatIsReservedAfterwardsIsShared) {
  Hbm hbm(2, 64 * kMiB, /*huge_pages=*/true);
  char* before = reserve(hbm, 1);
  before[0] = 'b';
  EXPECT_EQ(hbm.shared_fd(), -1);
  EXPECT_EQ(hbm.shared_offset(before, 1), std::nullopt);
  hbm.share();
  hbm.share();  // nothing more happens
  ASSERT_GE(hbm.shared_fd(), 0);
  EXPECT_EQ(before[0], 'b');
  EXPECT_EQ(hbm.shared_offset(before, 1), std::nullopt);

  char* after = reserve(hbm, 1);
  EXPECT_EQ(after, before + kSegment);
  EXPECT_EQ(hbm.shared_offset(after, kSegment), hbm.stride() + kSegment);
  EXPECT_EQ(hbm.shared_offset(after - 1, 2), std::nullopt);  // begins in the other segment
  EXPECT_EQ(hbm.shared_offset(&after, 1), std::nullopt);
  EXPECT_EQ(hbm.shared_offset(reserve(hbm, 0), 4), 0u);

  hbm.release(1, before, kSegment);
  char* again = reserve(hbm, 1);
  ASSERT_EQ(again, before);
  EXPECT_EQ(again[0], 0);
  EXPECT_EQ(hbm.shared_offset(again, kSegment), hbm.stride());
}

TEST(SharedHbm, AnotherMappingSeesTheBytesAndReleaseEmptiesThem) {
  Hbm hbm(1, 64 * kMiB, false);
  hbm.share();
  char* segment = reserve(hbm, 0);
  void* mapped = mmap(nullptr, kSegment, PROT_READ | PROT_WRITE, MAP_SHARED, hbm.shared_fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* view = static_cast<char*>(mapped);
  segment[100] = 'x';
  EXPECT_EQ(view[100], 'x');
  view[101] = 'y';
  EXPECT_EQ(segment[101], 'y');
  hbm.release(0, segment, kSegment);
  EXPECT_EQ(view[100], 0);
  EXPECT_NE(ftruncate(hbm.shared_fd(), 0), 0) << "a peer could make its users die of SIGBUS";
  munmap(mapped, kSegment);
}

TEST(SharedHbm, AChildOfForkChangesNothingInItsParent) {
  Hbm hbm(1, 64 * kMiB, false);
  char* before = reserve(hbm, 0);
  hbm.share();
  char* after = reserve(hbm, 0);
  before[0] = after[0] = 'p';
  const pid_t child = fork();
  if (child == 0) {
    const bool seen = before[0] == 'p' && after[0] == 'p' && hbm.shared_fd() == -1;
    before[0] = after[0] = 'c';
    _exit(seen ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(before[0], 'p');
  EXPECT_EQ(after[0], 'p');
}

TEST(SharedHbm, OneOfAProcessIsShared) {
  Hbm first(1, 64 * kMiB, false);
  first.share();
  Hbm second(1, 64 * kMiB, false);
  EXPECT_THROW(second.share(), std::system_error);
  EXPECT_NE(second.reserve(0, kSegment), nullptr);
}

TEST(SharedHbm, MemoryWithoutValuesIsNot) {
  Hbm hbm(1, 64 * kMiB, Hbm::Backing::kProtected);
  EXPECT_THROW(hbm.share(), std::system_error);
}

}  // namespace
}  // namespace cann::sim
