// The caching allocator's policy, case by case: which segment, when to split, when to give back, what a full card says.

#include <gtest/gtest.h>

#include <vector>

#include "heap_fixture.h"
#include "sim/host_memory.h"

namespace cann {
namespace {

TEST_F(HeapTest, SegmentSizesAreVisibleInReserved) {
  make(1024 * kMiB);
  allocate(1);
  EXPECT_EQ(allocated(), 512u);
  EXPECT_EQ(reserved(), 2 * kMiB);
  allocate(kMiB);
  EXPECT_EQ(reserved(), 2 * kMiB) << "shares the small segment";
  allocate(5 * kMiB);
  EXPECT_EQ(reserved(), 22 * kMiB);
  allocate(6 * kMiB);
  EXPECT_EQ(reserved(), 22 * kMiB) << "shares the large segment";
  allocate(64 * kMiB);
  EXPECT_EQ(reserved(), 86 * kMiB);
  EXPECT_EQ(hbm->used(0), reserved());
  const HeapStats stats = heap->stats();
  EXPECT_EQ(stats.segment.value(PoolKind::kSmall).current, 1);
  EXPECT_EQ(stats.segment.value(PoolKind::kLarge).current, 2);
  EXPECT_EQ(stats.num_device_alloc, 3);
}

TEST_F(HeapTest, CachedBlockIsReusedWithoutReserving) {
  make(1024 * kMiB);
  for (const size_t bytes : {size_t{700}, 300 * size_t{1024}, 3 * kMiB, 50 * kMiB}) {
    void* first = allocate(bytes);
    const HeapStats before = heap->stats();
    EXPECT_TRUE(free(first));
    EXPECT_EQ(allocate(bytes), first) << bytes;
    const HeapStats after = heap->stats();
    EXPECT_EQ(after.reserved_bytes.total().peak, before.reserved_bytes.total().peak);
    EXPECT_EQ(after.num_device_alloc, before.num_device_alloc);
  }
}

TEST_F(HeapTest, BestFitTakesTheSmallestSufficientBlock) {
  make(1024 * kMiB);
  void* wide = allocate(128 * 1024);
  allocate(512);  // keeps the neighbours from merging
  void* narrow = allocate(64 * 1024);
  allocate(512);
  free(wide);
  free(narrow);
  EXPECT_EQ(allocate(50 * 1024), narrow);
  EXPECT_EQ(allocate(100 * 1024), wide);
}

TEST_F(HeapTest, WarmBlocksDoNotMakeThePoolGrow) {
  make(1024 * kMiB);
  std::vector<void*> blocks;
  for (size_t units = 1; units <= 64; ++units) blocks.push_back(allocate(units * 512));
  EXPECT_EQ(reserved(), 2 * kMiB);
  for (void* block : blocks) free(block);  // 64 sizes: each stays unmerged in an entry of its own
  allocate(kMiB);
  allocate(kMiB);
  EXPECT_EQ(reserved(), 2 * kMiB);
}

TEST_F(HeapTest, SmallRemaindersOfLargeBlocksStayWithThem) {
  make(1024 * kMiB);
  void* whole = allocate(11 * kMiB);  // a segment of 12 MiB; 1 MiB over is no block of its own
  EXPECT_EQ(live_block(whole).size, 12 * kMiB);
  EXPECT_EQ(live_block(whole).requested, 11 * kMiB);
  EXPECT_EQ(heap->stats().inactive_split.current(), 0);
  void* part = allocate(2 * kMiB);  // 18 of 20 MiB are worth one
  EXPECT_EQ(live_block(part).size, 2 * kMiB);
  EXPECT_EQ(heap->stats().inactive_split_bytes.current(), static_cast<int64_t>(18 * kMiB));
}

TEST_F(HeapTest, FreedNeighboursMerge) {
  make(1024 * kMiB);
  for (const size_t bytes : {100 * size_t{1024}, 3 * kMiB}) {
    void* a = allocate(bytes);
    void* b = allocate(bytes);
    void* c = allocate(bytes);
    free(a);
    free(c);
    free(b);
    const HeapStats stats = heap->stats();
    EXPECT_EQ(stats.inactive_split.current(), 0) << "the segment is one block again";
    EXPECT_EQ(stats.inactive_split_bytes.current(), 0);
  }
  heap->empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(HeapTest, EmptyCacheKeepsSegmentsInUse) {
  make(1024 * kMiB);
  void* keep = allocate(1000);
  free(allocate(kMiB));
  free(allocate(30 * kMiB));
  EXPECT_EQ(reserved(), 32 * kMiB);
  heap->empty_cache();
  EXPECT_EQ(reserved(), 2 * kMiB);
  EXPECT_EQ(live_block(keep).requested, 1000u);
  free(keep);
  heap->empty_cache();
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(hbm->used(0), 0u);
}

TEST_F(HeapTest, StreamsDoNotShareBlocks) {
  make(1024 * kMiB);
  void* first = allocate(1000, /*stream=*/0);
  void* large = allocate(3 * kMiB, 0);
  EXPECT_EQ(live_block(first).stream, 0);
  free(first);
  free(large);
  void* other = allocate(1000, /*stream=*/5);
  EXPECT_NE(other, first);
  EXPECT_NE(allocate(3 * kMiB, 5), large);
  EXPECT_EQ(live_block(other).stream, 5);
  EXPECT_EQ(reserved(), 44 * kMiB);
  EXPECT_EQ(allocate(1000, 0), first);
}

TEST_F(HeapTest, BadFreesAreRefused) {
  make(1024 * kMiB);
  auto* small = static_cast<char*>(allocate(2048));
  auto* large = static_cast<char*>(allocate(4 * kMiB));
  EXPECT_FALSE(free(small + 512));
  EXPECT_FALSE(free(small + 1));
  EXPECT_FALSE(free(large + 512));
  EXPECT_FALSE(free(large + 2 * kMiB));
  EXPECT_FALSE(free(reinterpret_cast<char*>(hbm->begin()) + 900 * kMiB)) << "never reserved";
  EXPECT_TRUE(free(small));
  EXPECT_FALSE(free(small));
  EXPECT_TRUE(free(large));
  EXPECT_FALSE(free(large));
  heap->empty_cache();
  EXPECT_FALSE(free(small));
  EXPECT_FALSE(free(large));
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(HeapTest, BlockOfFindsInteriorPointers) {
  make(1024 * kMiB);
  allocate(512);
  auto* small = static_cast<char*>(allocate(2000));
  auto* large = static_cast<char*>(allocate(5 * kMiB));
  EXPECT_EQ(heap->block_of(small + 1999), std::pair(static_cast<void*>(small), size_t{2048}));
  EXPECT_EQ(heap->block_of(large + 5 * kMiB - 1), std::pair(static_cast<void*>(large), 5 * kMiB));
  EXPECT_EQ(heap->block_of(large + 5 * kMiB).first, nullptr) << "free remainder";
  EXPECT_EQ(heap->block_of(large + 100 * kMiB).first, nullptr) << "outside all segments";
  free(small);
  EXPECT_EQ(heap->block_of(small).first, nullptr);
}

TEST_F(HeapTest, FullCardEmptiesItsCacheAndTriesAgain) {
  make(64 * kMiB);
  free(allocate(40 * kMiB));
  EXPECT_NE(allocate(50 * kMiB, /*stream=*/3), nullptr);
  const HeapStats stats = heap->stats();
  EXPECT_EQ(stats.num_alloc_retries, 1);
  EXPECT_EQ(stats.num_ooms, 0);
  EXPECT_EQ(stats.num_device_free, 1);
}

TEST_F(HeapTest, FullCardSaysWhatItHolds) {
  make(64 * kMiB);
  allocate(40 * kMiB);
  allocate(600);
  EXPECT_EQ(allocate(30 * kMiB - 7), nullptr);
  EXPECT_EQ(why.reason, OutOfMemory::kCardFull);
  EXPECT_EQ(why.asked, 30 * kMiB);
  EXPECT_EQ(why.total, 64 * kMiB);
  EXPECT_EQ(why.allocated, 40 * kMiB + 1024);
  EXPECT_EQ(why.reserved, 42 * kMiB);
  EXPECT_EQ(why.free, 22 * kMiB);
  EXPECT_FALSE(why.fraction_set);
  EXPECT_EQ(heap->stats().num_ooms, 1);
  EXPECT_NE(allocate(20 * kMiB), nullptr) << "usable afterwards";
  EXPECT_EQ(allocate(size_t{1} << 60), nullptr);
}

TEST_F(HeapTest, MemoryFractionLimitsSegments) {
  make(100 * kMiB);
  heap->set_memory_fraction(0.5);
  EXPECT_DOUBLE_EQ(heap->memory_fraction(), 0.5);
  EXPECT_NE(allocate(40 * kMiB), nullptr);
  EXPECT_EQ(allocate(20 * kMiB), nullptr);
  EXPECT_EQ(why.reason, OutOfMemory::kBeyondFraction);
  EXPECT_TRUE(why.fraction_set);
  EXPECT_EQ(why.allowed, 50 * kMiB);
  heap->set_memory_fraction(1.0);
  EXPECT_NE(allocate(20 * kMiB), nullptr);
  heap->set_memory_fraction(0.0);
  EXPECT_EQ(allocate(30 * kMiB), nullptr);
}

TEST_F(HeapTest, RejectionBeyondTheFractionKeepsTheCache) {
  make(100 * kMiB, "per_process_memory_fraction:0.5,throw_on_npumalloc_oom:True");
  free(allocate(40 * kMiB));
  EXPECT_EQ(allocate(45 * kMiB), nullptr);
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(heap->stats().num_oom_rejections, 1);
  EXPECT_EQ(heap->stats().num_alloc_retries, 0);
}

TEST_F(HeapTest, ChargesTakeRoomAndEmptyTheCache) {
  make(64 * kMiB);
  free(allocate(40 * kMiB));
  EXPECT_TRUE(heap->charge(50 * kMiB, &why)) << "cached segments make way";
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(heap->card_free(), 14 * kMiB);
  EXPECT_FALSE(heap->charge(15 * kMiB, &why));
  EXPECT_EQ(why.reason, OutOfMemory::kCardFull);
  EXPECT_EQ(allocate(16 * kMiB), nullptr);
  heap->discharge(50 * kMiB);
  EXPECT_NE(allocate(16 * kMiB), nullptr);
}

TEST_F(HeapTest, MaxSplitSizeKeepsLargeBlocksWhole) {
  make(1024 * kMiB, "max_split_size_mb:64");
  void* oversize = allocate(100 * kMiB);
  EXPECT_EQ(heap->stats().oversize_allocation.current(), 1);
  EXPECT_EQ(heap->stats().oversize_segment.current(), 1);
  free(oversize);
  EXPECT_EQ(heap->stats().oversize_allocation.current(), 0);
  EXPECT_NE(allocate(30 * kMiB), oversize) << "not lent to a request below the limit";
  EXPECT_NE(allocate(70 * kMiB), oversize) << "30 MiB would be wasted";
  EXPECT_EQ(allocate(90 * kMiB), oversize) << "10 MiB may be";
  EXPECT_EQ(live_block(oversize).size, 100 * kMiB);
}

TEST_F(HeapTest, MaxSplitSizeMayChangeWhileBlocksLive) {
  make(1024 * kMiB);
  void* block = allocate(100 * kMiB);
  AllocatorConfig config;
  config.apply("max_split_size_mb:64");
  heap->set_config(config);
  free(block);
  heap->empty_cache();
  EXPECT_EQ(heap->stats().oversize_allocation.current(), 0);
  EXPECT_EQ(heap->stats().oversize_segment.current(), 0);
}

TEST_F(HeapTest, OversizeBlocksAreReleasedBeforeTheRestOfTheCache) {
  make(150 * kMiB, "max_split_size_mb:64");
  void* other = allocate(30 * kMiB);
  free(allocate(100 * kMiB));
  free(other);
  EXPECT_NE(allocate(70 * kMiB), nullptr);
  EXPECT_EQ(heap->stats().num_alloc_retries, 0) << "the oversize block was enough";
  EXPECT_EQ(reserved(), 100 * kMiB);
}

TEST_F(HeapTest, GarbageCollectionReleasesTheOldestAboveTheThreshold) {
  make(200 * kMiB, "garbage_collection_threshold:0.5");
  void* a = allocate(40 * kMiB);
  void* b = allocate(42 * kMiB);
  void* c = allocate(44 * kMiB);
  free(b);
  free(a);
  EXPECT_EQ(reserved(), 126 * kMiB);
  allocate(46 * kMiB);  // 126 > 100: releasing b, freed first, is enough
  EXPECT_EQ(reserved(), 130 * kMiB);
  EXPECT_EQ(live_block(c).size, 44 * kMiB);
  EXPECT_EQ(allocate(40 * kMiB), a) << "freed last, still cached";
}

TEST_F(HeapTest, RoundupOptionShowsInAllocatedBytes) {
  make(1024 * kMiB, "roundup_power2_divisions:4");
  void* ptr = allocate(33 * kMiB);
  EXPECT_EQ(live_block(ptr).size, 40 * kMiB);
  EXPECT_EQ(heap->stats().requested_bytes.current(), static_cast<int64_t>(33 * kMiB));
}

TEST_F(HeapTest, WithoutCachingMemoryGoesBackAtOnce) {
  make(64 * kMiB, "", /*caching=*/false);
  void* small = allocate(100);
  void* large = allocate(5 * kMiB);
  EXPECT_EQ(live_block(small).requested, 100u);
  EXPECT_EQ(reserved(), 8 * kMiB);
  EXPECT_TRUE(free(small));
  EXPECT_TRUE(free(large));
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(hbm->used(0), 0u);
  EXPECT_FALSE(free(large));
}

TEST_F(HeapTest, HostThatCannotBackASegmentIsNamed) {
  make(1024 * kMiB);
  HostBudget nothing_to_spare(/*margin=*/size_t{1} << 60);
  DeviceHeap strict(*hbm, *addresses, nothing_to_spare, 0, AllocatorConfig());
  EXPECT_EQ(strict.allocate(0, 1000, &why), nullptr);
  EXPECT_EQ(why.reason, OutOfMemory::kHostFull);
  EXPECT_EQ(hbm->used(0), 0u) << "the segment went back";
  void* virtual_only = strict.allocate(0, 100 * kMiB, &why);
  EXPECT_NE(virtual_only, nullptr) << "large blocks may stay untouched";
  free(virtual_only);
}

TEST_F(HeapTest, UnwrittenSegmentsKeepTheirClaimOnTheHost) {
  const size_t available = sim::host_memory_available();
  make(4 * available / kMiB * kMiB);
  size_t granted = 0;
  while (granted < 3 * available && allocate(60 * kMiB) != nullptr) granted += 60 * kMiB;
  EXPECT_EQ(why.reason, OutOfMemory::kHostFull);
  EXPECT_LT(granted, 2 * available);
  EXPECT_GT(granted, available / 2);
}

TEST_F(HeapTest, WrittenSegmentsMakeNoClaim) {
  make(1024 * kMiB);
  HostBudget budget(/*margin=*/0);
  auto* segment = static_cast<char*>(hbm->reserve(0, 2 * kMiB));
  // Re-admitting a written segment many times over must not use up the budget.
  const size_t rounds = 2 * sim::host_memory_available() / (2 * kMiB);
  for (size_t at = 0; at < 2 * kMiB; at += 4096) segment[at] = 1;
  for (size_t i = 0; i < rounds; ++i) {
    ASSERT_TRUE(budget.admit(segment, 2 * kMiB));
    budget.remove(segment);
  }
}

TEST_F(HeapTest, PeaksAndResets) {
  make(1024 * kMiB);
  void* a = allocate(10 * kMiB);
  void* b = allocate(20 * kMiB);
  free(a);
  EXPECT_EQ(heap->stats().allocated_bytes.total().peak, static_cast<int64_t>(30 * kMiB));
  heap->reset_peak_stats();
  EXPECT_EQ(heap->stats().allocated_bytes.total().peak, static_cast<int64_t>(20 * kMiB));
  EXPECT_EQ(heap->stats().allocated_bytes.total().freed, static_cast<int64_t>(10 * kMiB));
  heap->reset_accumulated_stats();
  free(b);
  const StatValue value = heap->stats().allocated_bytes.total();
  EXPECT_EQ(value.allocated, 0);
  EXPECT_EQ(value.freed, static_cast<int64_t>(20 * kMiB));
}

class CountingObserver final : public SegmentObserver {
 public:
  void segment_reserved(int card, void*, size_t bytes, int64_t stream) noexcept override {
    reserved += bytes;
    last_card = card;
    last_stream = stream;
  }
  void segment_released(int, void*, size_t bytes, int64_t) noexcept override { released += bytes; }
  size_t reserved = 0, released = 0;
  int last_card = -1;
  int64_t last_stream = -1;
};

TEST_F(HeapTest, ObserverSeesSegmentsComeAndGo) {
  make(1024 * kMiB);
  CountingObserver observer;
  heap->set_observer(&observer);
  free(allocate(100, /*stream=*/4));
  free(allocate(3 * kMiB, 4));
  heap->empty_cache();
  EXPECT_EQ(observer.reserved, 22 * kMiB);
  EXPECT_EQ(observer.released, 22 * kMiB);
  EXPECT_EQ(observer.last_card, 0);
  EXPECT_EQ(observer.last_stream, 4);
  heap->set_observer(nullptr);
  allocate(100);
  EXPECT_EQ(observer.reserved, 22 * kMiB);
}

}  // namespace
}  // namespace cann
