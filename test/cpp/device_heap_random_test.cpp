// Long random runs of the caching allocator against a simple model and against the invariants of its own snapshot.

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "heap_fixture.h"

namespace cann {
namespace {

// What a tensor would hold: marks at both ends, to notice another block written over it.
struct Tensor {
  char* ptr;
  size_t requested;
  int64_t stream;
  char mark;

  void write() const { ptr[0] = ptr[requested - 1] = mark; }
  bool intact() const { return ptr[0] == mark && ptr[requested - 1] == mark; }
};

class RandomHeapTest : public HeapTest, public testing::WithParamInterface<const char*> {
 protected:
  // Mostly small, some at the boundaries between the pools, a few large.
  size_t random_size() {
    switch (random_() % 8) {
      case 0:
        return 1 + random_() % (40 * kMiB);
      case 1:
        return kMiB - 1024 + random_() % 2048;
      case 2:
        return 1 + random_() % (2 * kMiB);
      case 3:
        return 512 * (1 + random_() % 16);
      default:
        return 1 + random_() % 65536;
    }
  }

  void allocate_one() {
    Tensor tensor{nullptr, random_size(), static_cast<int64_t>(random_() % 3), static_cast<char>(random_())};
    tensor.ptr = static_cast<char*>(allocate(tensor.requested, tensor.stream));
    if (tensor.ptr == nullptr) {
      ASSERT_EQ(why.reason, OutOfMemory::kCardFull);
      return;
    }
    ASSERT_EQ(reinterpret_cast<uintptr_t>(tensor.ptr) % kMinBlockSize, 0u);
    const LiveBlock block = live_block(tensor.ptr);
    ASSERT_GE(block.size, tensor.requested);
    ASSERT_EQ(block.requested, tensor.requested);
    ASSERT_EQ(block.stream, tensor.stream);
    tensor.write();
    tensors_.emplace(tensor.ptr, tensor);
  }

  void free_one() {
    if (tensors_.empty()) return;
    auto it = tensors_.begin();
    std::advance(it, static_cast<ptrdiff_t>(random_() % std::min<size_t>(tensors_.size(), 50)));
    ASSERT_TRUE(it->second.intact());
    ASSERT_TRUE(free(it->first));
    tensors_.erase(it);
  }

  // Blocks tile their segments, free neighbours have merged, and every statistic is the sum of what is there.
  void check() {
    const HeapStats stats = heap->stats();
    size_t live = 0, live_bytes = 0, requested = 0, reserved_bytes = 0, split = 0, split_bytes = 0;
    for (const SegmentRecord& segment : heap->snapshot()) {
      reserved_bytes += segment.size;
      const char* expected = segment.base;
      bool previous_free = false;
      for (const SegmentRecord::Block& block : segment.blocks) {
        ASSERT_EQ(block.ptr, expected);
        expected += block.size;
        ASSERT_FALSE(previous_free && !block.live) << "two free neighbours";
        previous_free = !block.live;
        if (block.live) {
          const auto it = tensors_.find(block.ptr);
          ASSERT_NE(it, tensors_.end());
          ASSERT_EQ(it->second.requested, block.requested);
          ASSERT_EQ(it->second.stream, segment.stream);
          ++live;
          live_bytes += block.size;
          requested += block.requested;
        } else if (block.size != segment.size) {
          ++split;
          split_bytes += block.size;
        }
      }
      ASSERT_EQ(expected, segment.base + segment.size);
    }
    ASSERT_EQ(live, tensors_.size());
    ASSERT_EQ(stats.allocation.current(), static_cast<int64_t>(live));
    ASSERT_EQ(stats.allocated_bytes.current(), static_cast<int64_t>(live_bytes));
    ASSERT_EQ(stats.requested_bytes.current(), static_cast<int64_t>(requested));
    ASSERT_EQ(stats.reserved_bytes.current(), static_cast<int64_t>(reserved_bytes));
    ASSERT_EQ(stats.inactive_split.current(), static_cast<int64_t>(split));
    ASSERT_EQ(stats.inactive_split_bytes.current(), static_cast<int64_t>(split_bytes));
    ASSERT_EQ(hbm->used(0), reserved_bytes);
  }

  std::mt19937_64 random_{11};
  std::map<char*, Tensor> tensors_;
};

TEST_P(RandomHeapTest, KeepsItsInvariants) {
  make(512 * kMiB, GetParam());
  for (int step = 0; step < 20000; ++step) {
    // Phases of growth and of decline, so that the card is full at times and nearly empty at others.
    const bool growing = step / 1000 % 2 == 0;
    if (random_() % 10 < (growing ? 6u : 4u)) {
      ASSERT_NO_FATAL_FAILURE(allocate_one());
    } else {
      ASSERT_NO_FATAL_FAILURE(free_one());
    }
    if (step % 1777 == 0) heap->empty_cache();
    if (step % 101 == 0) {
      ASSERT_NO_FATAL_FAILURE(check());
    }
  }
  EXPECT_GT(heap->stats().num_ooms, 0) << "the run never filled the card";
  while (!tensors_.empty()) ASSERT_NO_FATAL_FAILURE(free_one());
  ASSERT_NO_FATAL_FAILURE(check());
  heap->empty_cache();
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(hbm->used(0), 0u);
  EXPECT_EQ(heap->stats().inactive_split.current(), 0);
}

INSTANTIATE_TEST_SUITE_P(Options, RandomHeapTest,
                         testing::Values("", "max_split_size_mb:24", "garbage_collection_threshold:0.6",
                                         "roundup_power2_divisions:8", "large_segment_size_mb:64"));

// Threads allocate on their own streams and free each other's blocks.
TEST_F(HeapTest, ThreadsMayFreeEachOthersBlocks) {
  make(2048 * kMiB);
  constexpr int kThreads = 4, kSteps = 20000;
  std::mutex mutex;
  std::vector<Tensor> shared;
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::mt19937 random(static_cast<unsigned>(id));
      OutOfMemory refusal;
      for (int step = 0; step < kSteps; ++step) {
        const size_t bytes = random() % 64 == 0 ? 1 + random() % (3 * kMiB) : 1 + random() % 8192;
        Tensor tensor{nullptr, bytes, id, static_cast<char>(random())};
        tensor.ptr = static_cast<char*>(heap->allocate(id, bytes, &refusal));
        ASSERT_NE(tensor.ptr, nullptr);
        tensor.write();
        const std::lock_guard lock(mutex);
        shared.push_back(tensor);
        if (shared.size() < 64) continue;
        std::swap(shared[random() % shared.size()], shared.back());
        ASSERT_TRUE(shared.back().intact());
        ASSERT_TRUE(free(shared.back().ptr));
        shared.pop_back();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap->stats().allocation.current(), static_cast<int64_t>(shared.size()));
  for (const Tensor& tensor : shared) {
    EXPECT_TRUE(tensor.intact());
    EXPECT_TRUE(free(tensor.ptr));
  }
  heap->empty_cache();
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(heap->stats().allocation.total().allocated, kThreads * kSteps);
}

}  // namespace
}  // namespace cann
