#include "sim/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string_view>

namespace cann::sim {
namespace {

// Where the memory controller's files are and what they are called, per cgroup version.
struct CgroupLayout {
  std::string_view controller;  // field of /proc/self/cgroup; "" is version 2
  std::string_view mount;
  std::string_view limit, usage;
  std::string_view reclaimable;  // key of memory.stat: page cache that the kernel drops first
};
constexpr std::array kCgroupLayouts = {
    CgroupLayout{"", "/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"},
    CgroupLayout{"memory", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                 "total_inactive_file"},
};

// The first number in a file; nullopt when there is no such file or it says "max".
std::optional<size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// The number that follows the word `key` in a file of "key number" lines.
std::optional<size_t> read_field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t digits = line.find_first_of("0123456789", key.size());
    if (digits == std::string::npos || line.find_first_not_of(" :\t", key.size()) != digits) continue;
    size_t value = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), value);
    return value;
  }
  return std::nullopt;
}

// What one cgroup leaves, SIZE_MAX when it sets no limit.
size_t left_in_group(const std::string& directory, const CgroupLayout& layout) {
  constexpr size_t kUnlimited = size_t{1} << 60;  // version 1 writes "no limit" as a number near 2^63
  const auto limit = read_number(directory + std::string(layout.limit));
  if (!limit || *limit >= kUnlimited) return SIZE_MAX;
  const size_t usage = read_number(directory + std::string(layout.usage)).value_or(0);
  const size_t cache = read_field(directory + "/memory.stat", layout.reclaimable).value_or(0);
  const size_t held = usage - std::min(usage, cache);
  return *limit - std::min(*limit, held);
}

// Limits nest: the tightest of the group and all its parents counts. In a container the path may be that of the host
// while the mount shows the container's own root; walking up ends at the mount and so covers that too.
size_t left_in_hierarchy(const std::string& mount, std::string path, const CgroupLayout& layout) {
  size_t left = SIZE_MAX;
  while (!path.empty() && path.back() == '/') path.pop_back();
  while (true) {
    left = std::min(left, left_in_group(mount + path, layout));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return left;
    path.resize(slash);
  }
}

size_t left_in_cgroups(const std::string& root) {
  size_t left = SIZE_MAX;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "id:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    for (const CgroupLayout& layout : kCgroupLayouts) {
      if (controllers != layout.controller) continue;
      left = std::min(left, left_in_hierarchy(root + std::string(layout.mount), line.substr(second + 1), layout));
    }
  }
  return left;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The last reading and when it must be renewed. Threads may race to renew it: each then reads for itself, which is
// right.
struct Reading {
  std::atomic<int64_t> unspent{0};  // available bytes, less what was granted since
  std::atomic<int64_t> expires_ns{0};
};
Reading g_reading;

// A machine fills its memory at no more than some 64 MiB per ms, so a reading holds for as long as filling would take.
int64_t lifetime_ns(size_t available, size_t margin) {
  constexpr size_t kBytesPerMs = size_t{64} << 20;
  constexpr size_t kLongestMs = 100;
  const size_t slack = available - std::min(available, margin);
  return static_cast<int64_t>(std::min(slack / kBytesPerMs, kLongestMs)) * 1'000'000;
}

}  // namespace

size_t host_memory_available_at(const std::string& root) {
  // "MemAvailable:  123 kB"
  const auto kib = read_field(root + "/proc/meminfo", "MemAvailable");
  return std::min(kib ? *kib * 1024 : SIZE_MAX, left_in_cgroups(root));
}

size_t host_memory_available() { return host_memory_available_at(""); }

size_t untouched_bytes(const void* ptr, size_t bytes) {
  if (bytes == 0) return 0;
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPagesPerCall = 4096;
  std::array<unsigned char, kPagesPerCall> resident;
  const uintptr_t end = reinterpret_cast<uintptr_t>(ptr) + bytes;
  size_t untouched = 0;
  for (uintptr_t at = reinterpret_cast<uintptr_t>(ptr) / page * page; at < end; at += kPagesPerCall * page) {
    const size_t pages = std::min(kPagesPerCall, (end - at + page - 1) / page);
    if (mincore(reinterpret_cast<void*>(at), pages * page, resident.data()) != 0) {
      untouched += pages * page;  // not even mapped
      continue;
    }
    untouched += static_cast<size_t>(std::count_if(resident.begin(), resident.begin() + static_cast<ptrdiff_t>(pages),
                                                   [](unsigned char flags) { return (flags & 1) == 0; })) *
                 page;
  }
  return std::min(untouched, bytes);
}

bool host_can_write(const void* ptr, size_t bytes, size_t margin) {
  const auto need = static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX / 2));
  const auto reserve = static_cast<int64_t>(std::min<size_t>(margin, INT64_MAX / 2));
  const int64_t now = now_ns();
  if (now < g_reading.expires_ns.load(std::memory_order_relaxed) &&
      g_reading.unspent.load(std::memory_order_relaxed) >= need + reserve) {
    g_reading.unspent.fetch_sub(need, std::memory_order_relaxed);
    return true;
  }
  const size_t available = std::min<size_t>(host_memory_available(), INT64_MAX / 2);
  const bool ample = available >= bytes && available - bytes >= margin;
  const size_t cost = ample || ptr == nullptr ? bytes : untouched_bytes(ptr, bytes);
  const bool can = available >= cost && available - cost >= margin;
  g_reading.unspent.store(static_cast<int64_t>(available) - (can ? static_cast<int64_t>(cost) : 0),
                          std::memory_order_relaxed);
  g_reading.expires_ns.store(now + lifetime_ns(available, margin), std::memory_order_relaxed);
  return can;
}

}  // namespace cann::sim
