#include "runtime/device_heap.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/process_record.h"

namespace cann {
namespace {

using Guard = std::lock_guard<SpinLock>;

}  // namespace

DeviceHeap::DeviceHeap(sim::Hbm& hbm, AddressMap& addresses, HostBudget& host, int card, const AllocatorConfig& config)
    : hbm_(hbm), addresses_(addresses), host_(host), card_(card), config_(config) {
  if (config.memory_fraction) set_memory_fraction(*config.memory_fraction);
}

DeviceHeap::~DeviceHeap() {
  for (const auto& [base, segment] : segments_) {
    if (segment.small != nullptr) {
      addresses_.set_small(base, nullptr);
      SmallPool::destroy(segment.small);
    }
    for (LargeBlock* block = segment.first; block != nullptr;) {
      addresses_.set_large(block->ptr, nullptr);
      delete std::exchange(block, block->after);
    }
    host_.remove(base);
    hbm_.release(card_, base, segment.size);
  }
}

DeviceHeap::StreamPools& DeviceHeap::find_pools(int64_t stream) {
  auto& slot = pools_[stream];
  if (slot == nullptr) slot = std::make_unique<StreamPools>(*this, stream);
  last_pools_ = slot.get();
  return *slot;
}

void* DeviceHeap::take(StreamPools& pools, size_t size, size_t requested, bool small) {
  if (small) return pools.small.take(size, requested);
  const LargeBlock* block = pools.large.take(size, requested);
  return block == nullptr ? nullptr : block->ptr;
}

void* DeviceHeap::allocate(int64_t stream, size_t bytes, OutOfMemory* why) {
  const Guard guard(lock_);
  const size_t size = config_.block_size(bytes);
  const bool small = is_small(size);
  StreamPools& pools = pools_of(stream);
  if (void* ptr = take(pools, size, bytes, small)) [[likely]]
    return ptr;
  if (!grow(pools, size, small, why)) return nullptr;
  return take(pools, size, bytes, small);
}

bool DeviceHeap::grow(StreamPools& pools, size_t size, bool small, OutOfMemory* why) {
  const size_t bytes = config_.segment_size(size);
  if (config_.garbage_collection_threshold > 0) collect_garbage();
  OutOfMemory::Reason reason = try_reserve(pools, bytes, small);
  const bool rejected = reason == OutOfMemory::kBeyondFraction && config_.reject_beyond_fraction;
  if (rejected) ++stats_.num_oom_rejections;
  if (reason != OutOfMemory::kNone && !rejected) {
    if (release_oversize(pools, bytes)) reason = try_reserve(pools, bytes, small);
    if (reason != OutOfMemory::kNone) {
      release_unused();
      ++stats_.num_alloc_retries;
      reason = try_reserve(pools, bytes, small);
    }
  }
  if (reason == OutOfMemory::kNone) return true;
  if (!rejected) ++stats_.num_ooms;
  describe(why, reason, bytes);
  return false;
}

OutOfMemory::Reason DeviceHeap::try_reserve(StreamPools& pools, size_t bytes, bool small) {
  if (bytes > allowed_bytes() || reserved_bytes() > allowed_bytes() - bytes) {
    return fraction_set_ ? OutOfMemory::kBeyondFraction : OutOfMemory::kCardFull;
  }
  auto* base = static_cast<char*>(hbm_.reserve(card_, bytes));
  if (base == nullptr) return OutOfMemory::kCardFull;
  if (!host_.admit(base, bytes)) {
    hbm_.release(card_, base, bytes);
    return OutOfMemory::kHostFull;
  }
  add_segment(pools, base, bytes, small);
  process_record::set_used(card_, hbm_.used(card_));
  return OutOfMemory::kNone;
}

void DeviceHeap::add_segment(StreamPools& pools, char* base, size_t bytes, bool small) {
  Segment segment{
      .size = bytes, .pools = &pools, .small = nullptr, .first = nullptr, .oversize = bytes >= config_.max_split_size};
  if (small) {
    segment.small = pools.small.add_segment(base);
    addresses_.set_small(base, segment.small);
  } else {
    segment.first = pools.large.add_segment(base, bytes);
  }
  segments_.emplace(base, segment);
  if (segment.oversize) stats_.oversize_segment.add(segment.kind(), 1);
  stats_.segment.add(segment.kind(), 1);
  stats_.reserved_bytes.add(segment.kind(), static_cast<int64_t>(bytes));
  ++stats_.num_device_alloc;
  if (observer_ != nullptr) observer_->segment_reserved(card_, base, bytes, pools.stream);
}

void DeviceHeap::describe(OutOfMemory* why, OutOfMemory::Reason reason, size_t asked) const {
  why->reason = reason;
  why->asked = asked;
  why->total = hbm_.capacity();
  why->free = hbm_.capacity() - hbm_.used(card_);
  why->allowed = allowed_bytes();
  why->fraction_set = fraction_set_;
  why->allocated = static_cast<size_t>(stats_.allocated_bytes.current());
  why->reserved = reserved_bytes();
}

bool DeviceHeap::free(AddressMap& addresses, void* ptr) noexcept {
  const AddressMap::Entry entry = addresses.find(ptr);
  if (entry.small != nullptr) [[likely]] {
    DeviceHeap& heap = entry.small->pool->heap();
    const Guard guard(heap.lock_);
    SmallBlock* block = entry.small->live_block_at(ptr);
    if (block == nullptr) return false;
    entry.small->pool->give(*block);
    return true;
  }
  if (entry.large == nullptr) return false;
  DeviceHeap& heap = entry.large->pool->heap();
  const Guard guard(heap.lock_);
  if (entry.large->ptr != ptr || !entry.large->live) return false;
  LargePool& pool = *entry.large->pool;
  LargeBlock* merged = pool.give(*entry.large);
  if (!heap.config_.caching) heap.release_large(pool, merged);
  return true;
}

LiveBlock DeviceHeap::live_block(AddressMap& addresses, const void* ptr) noexcept {
  const AddressMap::Entry entry = addresses.find(ptr);
  if (entry.small != nullptr) {
    const SmallPool& pool = *entry.small->pool;
    const Guard guard(pool.heap().lock_);
    const SmallBlock* block = entry.small->live_block_at(ptr);
    if (block == nullptr) return {};
    return {block->units * kMinBlockSize, block->requested, pool.stream(), pool.heap().card_};
  }
  if (entry.large == nullptr) return {};
  const LargePool& pool = *entry.large->pool;
  const Guard guard(pool.heap().lock_);
  if (entry.large->ptr != ptr || !entry.large->live) return {};
  return {entry.large->size, entry.large->requested, pool.stream(), pool.heap().card_};
}

std::pair<void*, size_t> DeviceHeap::block_of(const void* ptr) const {
  const Guard guard(lock_);
  const char* address = static_cast<const char*>(ptr);
  auto it = segments_.upper_bound(const_cast<char*>(address));
  if (it == segments_.begin()) return {nullptr, 0};
  --it;
  if (address >= it->first + it->second.size) return {nullptr, 0};
  for (const SegmentRecord::Block& block : blocks_of(it->second)) {
    if (address < block.ptr + block.size)
      return block.live ? std::pair<void*, size_t>(block.ptr, block.size) : std::pair<void*, size_t>(nullptr, 0);
  }
  return {nullptr, 0};
}

void DeviceHeap::empty_cache() {
  const Guard guard(lock_);
  release_unused();
}

bool DeviceHeap::charge(size_t bytes, OutOfMemory* why) {
  const Guard guard(lock_);
  bool charged = hbm_.charge(card_, bytes);
  if (!charged) {
    release_unused();
    charged = hbm_.charge(card_, bytes);
  }
  process_record::set_used(card_, hbm_.used(card_));
  if (charged) return true;
  ++stats_.num_ooms;
  describe(why, OutOfMemory::kCardFull, bytes);
  return false;
}

size_t DeviceHeap::card_free() const {
  const Guard guard(lock_);
  return hbm_.capacity() - hbm_.used(card_);
}

void DeviceHeap::discharge(size_t bytes) noexcept {
  const Guard guard(lock_);
  hbm_.discharge(card_, bytes);
  process_record::set_used(card_, hbm_.used(card_));
}

// Releases unused segments of the large pool, oldest first, until what is reserved is below the threshold's share.
// Small segments stay: they are cheap and soon wanted again.
void DeviceHeap::collect_garbage() {
  const double limit = config_.garbage_collection_threshold * static_cast<double>(allowed_bytes());
  while (static_cast<double>(reserved_bytes()) > limit) {
    LargeBlock* oldest = nullptr;
    for (const auto& [stream, pools] : pools_) {
      LargeBlock* block = pools->large.oldest_unused_segment();
      if (block != nullptr && (oldest == nullptr || block->freed_at < oldest->freed_at)) oldest = block;
    }
    if (oldest == nullptr) return;
    release_large(*oldest->pool, oldest);
  }
}

// With max_split_size set, large blocks cannot be cut up for the request, so giving some of them back may be enough.
// Returns whether at least `wanted` bytes were released.
bool DeviceHeap::release_oversize(StreamPools& pools, size_t wanted) {
  if (config_.max_split_size == kNoLimit) return false;
  if (LargeBlock* block = pools.large.unused_segment(std::max(wanted, config_.max_split_size))) {
    release_large(pools.large, block);
    return true;
  }
  for (size_t released = 0; released < wanted;) {
    LargeBlock* block = pools.large.largest_oversize_segment();
    if (block == nullptr) return false;
    released += block->size;
    release_large(pools.large, block);
  }
  return true;
}

void DeviceHeap::release_unused() {
  for (const auto& [stream, pools] : pools_) {
    pools->small.merge_warm();
    while (SmallSegment* segment = pools->small.unused_segment()) release_small(pools->small, segment);
    while (LargeBlock* block = pools->large.unused_segment()) release_large(pools->large, block);
  }
}

void DeviceHeap::release_small(SmallPool& pool, SmallSegment* segment) {
  char* base = segment->base;
  addresses_.set_small(base, nullptr);
  pool.remove_segment(segment);
  release_segment(base);
}

void DeviceHeap::release_large(LargePool& pool, LargeBlock* block) {
  char* base = block->ptr;
  pool.remove_segment(block);
  release_segment(base);
}

void DeviceHeap::release_segment(char* base) {
  const auto it = segments_.find(base);
  const Segment segment = it->second;
  segments_.erase(it);
  host_.remove(base);
  hbm_.release(card_, base, segment.size);
  process_record::set_used(card_, hbm_.used(card_));
  if (segment.oversize) stats_.oversize_segment.remove(segment.kind(), 1);
  stats_.segment.remove(segment.kind(), 1);
  stats_.reserved_bytes.remove(segment.kind(), static_cast<int64_t>(segment.size));
  ++stats_.num_device_free;
  if (observer_ != nullptr) observer_->segment_released(card_, base, segment.size, segment.pools->stream);
}

size_t DeviceHeap::allowed_bytes() const {
  return static_cast<size_t>(fraction_ * static_cast<double>(hbm_.capacity()));
}

void DeviceHeap::set_config(const AllocatorConfig& config) {
  const Guard guard(lock_);
  config_ = config;
}

void DeviceHeap::set_memory_fraction(double fraction) {
  const Guard guard(lock_);
  fraction_ = fraction;
  fraction_set_ = true;
}

double DeviceHeap::memory_fraction() const {
  const Guard guard(lock_);
  return fraction_;
}

HeapStats DeviceHeap::stats() const {
  const Guard guard(lock_);
  for (const auto& [stream, pools] : pools_) pools->small.merge_warm();
  return stats_;
}

std::pair<size_t, size_t> DeviceHeap::usage() const {
  const Guard guard(lock_);
  return {static_cast<size_t>(stats_.allocated_bytes.current()), reserved_bytes()};
}

void DeviceHeap::reset_peak_stats() {
  const Guard guard(lock_);
  stats_.reset_peak();
}

void DeviceHeap::reset_accumulated_stats() {
  const Guard guard(lock_);
  stats_.reset_accumulated();
}

void DeviceHeap::set_observer(SegmentObserver* observer) {
  const Guard guard(lock_);
  observer_ = observer;
}

std::vector<SegmentRecord::Block> DeviceHeap::blocks_of(const Segment& segment) {
  std::vector<SegmentRecord::Block> blocks;
  if (segment.small != nullptr) {
    SmallSegment& small = *segment.small;
    for (const SmallBlock* block = &small.blocks[0]; block != nullptr; block = small.after(*block)) {
      const bool live = block->state == SmallBlock::kLive;
      blocks.push_back({small.address_of(*block), block->units * kMinBlockSize, live ? block->requested : 0, live});
    }
  }
  for (const LargeBlock* block = segment.first; block != nullptr; block = block->after) {
    blocks.push_back({block->ptr, block->size, block->live ? block->requested : 0, block->live});
  }
  return blocks;
}

std::vector<SegmentRecord> DeviceHeap::snapshot() const {
  const Guard guard(lock_);
  for (const auto& [stream, pools] : pools_) pools->small.merge_warm();
  std::vector<SegmentRecord> records;
  records.reserve(segments_.size());
  for (const auto& [base, segment] : segments_) {
    records.push_back({base, segment.size, segment.kind(), segment.pools->stream, blocks_of(segment)});
  }
  return records;
}

}  // namespace cann
