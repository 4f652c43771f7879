// What the host can still give: /proc and cgroup files of both versions, and counting of untouched pages.

#include "sim/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A tree of files that stands for /.
class FakeHost : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            (std::string("cann_host_memory_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const auto full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void write_meminfo(size_t available_mib) {
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemFree:   1 kB\nMemAvailable:   " +
                              std::to_string(available_mib * 1024) + " kB\nBuffers: 5 kB\n");
  }
  size_t available() const { return host_memory_available_at(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(FakeHost, UnknownSystemSetsNoLimit) { EXPECT_EQ(available(), SIZE_MAX); }

TEST_F(FakeHost, MemAvailableAlone) {
  write_meminfo(1000);
  EXPECT_EQ(available(), 1000 * kMiB);
}

TEST_F(FakeHost, CgroupVersion2LimitLessUsageWithoutPageCache) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", std::to_string(500 * kMiB));
  write("sys/fs/cgroup/jobs/one/memory.current", std::to_string(300 * kMiB));
  write("sys/fs/cgroup/jobs/one/memory.stat",
        "anon 1\ninactive_file_other 7\ninactive_file " + std::to_string(100 * kMiB) + "\n");
  EXPECT_EQ(available(), 300 * kMiB);
}

TEST_F(FakeHost, CgroupVersion2WithoutLimit) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/jobs\n");
  write("sys/fs/cgroup/jobs/memory.max", "max\n");
  EXPECT_EQ(available(), 1000 * kMiB);
}

TEST_F(FakeHost, TightestParentCounts) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", std::to_string(500 * kMiB));
  write("sys/fs/cgroup/jobs/one/memory.current", "0");
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(200 * kMiB));
  write("sys/fs/cgroup/jobs/memory.current", std::to_string(150 * kMiB));
  EXPECT_EQ(available(), 50 * kMiB);
}

TEST_F(FakeHost, CgroupVersion1) {
  write_meminfo(1000);
  write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/box\n1:cpu:/\n0::/\n");
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(400 * kMiB));
  write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(390 * kMiB));
  write("sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file " + std::to_string(10 * kMiB) + "\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 20 * kMiB);
}

TEST_F(FakeHost, ContainerSeesItsGroupAtTheMountsRoot) {
  write_meminfo(1000);
  write("proc/self/cgroup", "4:memory:/path/on/the/host\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(400 * kMiB));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(450 * kMiB));
  EXPECT_EQ(available(), 0u);
}

TEST(HostMemory, RealSystemSaysSomethingSensible) {
  const size_t available = host_memory_available();
  EXPECT_GT(available, 16 * kMiB);
  EXPECT_LT(available, SIZE_MAX);
}

class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes),
        ptr_(static_cast<char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    madvise(ptr_, bytes_, MADV_NOHUGEPAGE);  // so that one write touches one page
  }
  ~Mapping() { munmap(ptr_, bytes_); }
  char* get() const { return ptr_; }

 private:
  size_t bytes_;
  char* ptr_;
};

TEST(HostMemory, CountsUntouchedPages) {
  const size_t page = 4096, bytes = 40 * kMiB;
  const Mapping mapping(bytes);
  EXPECT_EQ(untouched_bytes(mapping.get(), bytes), bytes);
  mapping.get()[0] = 1;
  mapping.get()[20 * kMiB + 5] = 1;
  mapping.get()[bytes - 1] = 1;
  EXPECT_EQ(untouched_bytes(mapping.get(), bytes), bytes - 3 * page);
  EXPECT_EQ(untouched_bytes(mapping.get(), 1), 0u);
  EXPECT_EQ(untouched_bytes(mapping.get() + page, 1), 1u);
  EXPECT_EQ(untouched_bytes(mapping.get(), 0), 0u);
}

TEST(HostMemory, RefusesWhatTheHostCannotBack) {
  const size_t available = host_memory_available();
  EXPECT_TRUE(host_can_write(nullptr, kMiB, 0));
  EXPECT_FALSE(host_can_write(nullptr, 2 * available, 0));
  EXPECT_FALSE(host_can_write(nullptr, kMiB, 2 * available));
  EXPECT_FALSE(host_can_write(nullptr, SIZE_MAX, SIZE_MAX));
  EXPECT_TRUE(host_can_write(nullptr, kMiB, 0)) << "a refusal must not stick";
}

// Address space of any length, all of it backed by the same few touched pages.
class TouchedMapping {
 public:
  explicit TouchedMapping(size_t bytes) : bytes_((bytes + kPiece - 1) / kPiece * kPiece) {
    const int file = memfd_create("touched", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, kPiece), 0);
    ptr_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t at = 0; at < bytes_; at += kPiece) {
      mmap(ptr_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    }
    for (size_t at = 0; at < kPiece; at += 4096) ptr_[at] = 1;
    close(file);
  }
  ~TouchedMapping() { munmap(ptr_, bytes_); }
  const char* get() const { return ptr_; }

 private:
  static constexpr size_t kPiece = 16 * kMiB;
  size_t bytes_;
  char* ptr_;
};

TEST(HostMemory, TouchedMemoryMayBeWrittenHoweverLittleIsLeft) {
  const size_t available = host_memory_available();
  const size_t margin = available / 2, bytes = available / 4 * 3;
  const TouchedMapping mapping(bytes);
  EXPECT_FALSE(host_can_write(nullptr, bytes, margin));
  EXPECT_TRUE(host_can_write(mapping.get(), bytes, margin));
}

}  // namespace
}  // namespace cann::sim
