// What an allocate-and-free pair costs, in CPU time of the thread, beside the C library's.

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "runtime/device_heap.h"

namespace cann {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <typename Action>
void report(const char* name, int count, Action action) {
  double best = 1e18;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const double start = cpu_ns();
    for (int i = 0; i < count; ++i) action(i);
    best = std::min(best, (cpu_ns() - start) / count);
  }
  std::printf("%-44s %7.1f ns\n", name, best);
}

std::array<size_t, 4096> random_sizes(size_t low, size_t high) {
  std::mt19937_64 random(1);
  std::array<size_t, 4096> sizes{};
  for (size_t& size : sizes) size = low + random() % (high - low);
  return sizes;
}

// Keeps `slots` blocks alive and replaces one per step.
template <typename Allocate, typename Free>
void report_replacing(const char* name, int count, size_t low, size_t high, Allocate allocate, Free free_block) {
  std::array<void*, 64> ring{};
  const auto sizes = random_sizes(low, high);
  report(name, count, [&](int i) {
    void*& slot = ring[static_cast<size_t>(i) * 7 % ring.size()];
    if (slot != nullptr) free_block(slot);
    slot = allocate(sizes[static_cast<size_t>(i) % sizes.size()]);
  });
  for (void* ptr : ring) {
    if (ptr != nullptr) free_block(ptr);
  }
}

void run() {
  sim::Hbm hbm(8, 60 * 1024 * kMiB, true);
  AddressMap addresses(hbm.begin(), hbm.end());
  HostBudget host(/*margin=*/0);
  DeviceHeap heap(hbm, addresses, host, /*card=*/0, AllocatorConfig());
  OutOfMemory why;
  const auto allocate = [&](size_t bytes) { return heap.allocate(0, bytes, &why); };
  const auto free_block = [&](void* ptr) { DeviceHeap::free(addresses, ptr); };
  const auto c_allocate = [](size_t bytes) {
    void* ptr = nullptr;
    if (posix_memalign(&ptr, 64, bytes) != 0) std::abort();
    return ptr;
  };
  const auto pair = [](auto take, auto give, size_t bytes) { return [=](int) { give(take(bytes)); }; };

  report("heap, 256 B", 1000000, pair(allocate, free_block, 256));
  report("posix_memalign, 256 B", 1000000, pair(c_allocate, std::free, 256));
  report("heap, 64 KiB", 1000000, pair(allocate, free_block, 65536));
  report("posix_memalign, 64 KiB", 1000000, pair(c_allocate, std::free, 65536));
  report("heap, 4 MiB", 200000, pair(allocate, free_block, 4 * kMiB));
  report("heap, 64 MiB", 200000, pair(allocate, free_block, 64 * kMiB));
  report_replacing("heap, 1 B to 16 KiB, 64 alive", 1000000, 1, 16384, allocate, free_block);
  report_replacing("posix_memalign, 1 B to 16 KiB, 64 alive", 1000000, 1, 16384, c_allocate, std::free);
  report_replacing("heap, 1 to 40 MiB, 64 alive", 100000, kMiB, 40 * kMiB, allocate, free_block);
}

}  // namespace
}  // namespace cann

int main() { cann::run(); }
