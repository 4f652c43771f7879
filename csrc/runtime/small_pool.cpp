#include "runtime/small_pool.h"

#include <bit>
#include <cstddef>
#include <new>
#include <utility>

#include "runtime/virtual_memory.h"

namespace cann {
namespace {

constexpr PoolKind kKind = PoolKind::kSmall;

SmallSegment& segment_of(SmallBlock& block) {
  SmallBlock* first = &block - block.unit;
  return *reinterpret_cast<SmallSegment*>(reinterpret_cast<char*>(first) - offsetof(SmallSegment, blocks));
}

constexpr int64_t bytes_of(size_t units) { return static_cast<int64_t>(units * kMinBlockSize); }

}  // namespace

void SmallPool::link(SmallBlock& block) {
  const size_t bin = block.units - 1u;
  SmallBlock* head = bins_[bin];
  block.bin_previous = nullptr;
  block.bin_next = head;
  bins_[bin] = &block;
  if (head != nullptr) {
    head->bin_previous = &block;
    return;
  }
  bins_in_use_[bin / kWordBits] |= uint64_t{1} << (bin % kWordBits);
  words_in_use_ |= uint64_t{1} << (bin / kWordBits);
}

void SmallPool::unlink(SmallBlock& block) {
  if (block.bin_next != nullptr) block.bin_next->bin_previous = block.bin_previous;
  if (block.bin_previous != nullptr) {
    block.bin_previous->bin_next = block.bin_next;
    return;
  }
  const size_t bin = block.units - 1u;
  bins_[bin] = block.bin_next;
  if (block.bin_next != nullptr) return;
  uint64_t& word = bins_in_use_[bin / kWordBits];
  word &= ~(uint64_t{1} << (bin % kWordBits));
  if (word == 0) words_in_use_ &= ~(uint64_t{1} << (bin / kWordBits));
}

SmallBlock* SmallPool::best_fit(size_t units) const {
  const size_t bin = units - 1;
  size_t word = bin / kWordBits;
  uint64_t bits = bins_in_use_[word] & (~uint64_t{0} << (bin % kWordBits));
  if (bits == 0) {
    // Shifting by the word size is undefined, hence in two steps.
    const uint64_t words = words_in_use_ & (~uint64_t{0} << word << 1);
    if (words == 0) return nullptr;
    word = static_cast<size_t>(std::countr_zero(words));
    bits = bins_in_use_[word];
  }
  return bins_[word * kWordBits + static_cast<size_t>(std::countr_zero(bits))];
}

char* SmallPool::take(size_t size, size_t requested) {
  const size_t units = size / kMinBlockSize;
  SmallBlock* block = units <= kWarmSizes ? std::exchange(warm_[units], nullptr) : nullptr;
  if (block == nullptr) {
    block = best_fit(units);
    if (block == nullptr) {
      merge_warm();
      block = best_fit(units);
      if (block == nullptr) return nullptr;
    }
    split(*block, units);
  }
  block->state = SmallBlock::kLive;
  block->requested = static_cast<uint32_t>(requested);
  stats_.allocation.add(kKind, 1);
  stats_.allocated_bytes.add(kKind, static_cast<int64_t>(size));
  stats_.requested_bytes.add(kKind, static_cast<int64_t>(requested));
  return segment_of(*block).address_of(*block);
}

void SmallPool::give(SmallBlock& block) {
  stats_.allocation.remove(kKind, 1);
  stats_.allocated_bytes.remove(kKind, bytes_of(block.units));
  stats_.requested_bytes.remove(kKind, block.requested);
  if (block.units > kWarmSizes) return merge(block);
  block.state = SmallBlock::kWarm;
  SmallBlock* previous = std::exchange(warm_[block.units], &block);
  if (previous != nullptr) merge(*previous);
}

void SmallPool::merge_warm() {
  for (SmallBlock*& warm : warm_) {
    if (SmallBlock* block = std::exchange(warm, nullptr)) merge(*block);
  }
}

// Takes a free block out of its list and cuts it down to `units`; what remains is a free block of its own.
void SmallPool::split(SmallBlock& block, size_t units) {
  unlink(block);
  const bool was_whole = block.units == kSmallUnits;
  const size_t remaining = block.units - units;
  if (remaining != 0) {
    SmallSegment& segment = segment_of(block);
    SmallBlock& rest = segment.blocks[block.unit + units];
    rest.unit = static_cast<uint16_t>(block.unit + units);
    rest.units = static_cast<uint16_t>(remaining);
    rest.units_before = static_cast<uint16_t>(units);
    rest.state = SmallBlock::kFree;
    if (SmallBlock* next = segment.after(rest)) next->units_before = rest.units;
    block.units = static_cast<uint16_t>(units);
    link(rest);
  }
  if (was_whole) {  // and then something remains, since a request is at most half a segment
    stats_.inactive_split.add(kKind, 1);
    stats_.inactive_split_bytes.add(kKind, bytes_of(remaining));
    return;
  }
  if (remaining == 0) stats_.inactive_split.remove(kKind, 1);
  stats_.inactive_split_bytes.remove(kKind, bytes_of(units));
}

// Makes a block that is not in use free, together with its free neighbours.
void SmallPool::merge(SmallBlock& merged) {
  SmallSegment& segment = segment_of(merged);
  SmallBlock* block = &merged;
  const size_t added_units = merged.units;
  int64_t added_blocks = 1;
  if (SmallBlock* next = segment.after(merged); next != nullptr && next->state == SmallBlock::kFree) {
    unlink(*next);
    next->state = SmallBlock::kNone;
    block->units = static_cast<uint16_t>(block->units + next->units);
    --added_blocks;
  }
  if (SmallBlock* before = segment.before(merged); before != nullptr && before->state == SmallBlock::kFree) {
    unlink(*before);
    block->state = SmallBlock::kNone;
    before->units = static_cast<uint16_t>(before->units + block->units);
    block = before;
    --added_blocks;
  }
  block->state = SmallBlock::kFree;
  if (SmallBlock* after = segment.after(*block)) after->units_before = block->units;
  link(*block);

  if (block->units == kSmallUnits) {  // the neighbours were split blocks; now the segment is one unsplit block
    stats_.inactive_split.remove(kKind, 1 - added_blocks);
    stats_.inactive_split_bytes.remove(kKind, bytes_of(kSmallUnits - added_units));
    return;
  }
  if (added_blocks > 0) stats_.inactive_split.add(kKind, added_blocks);
  if (added_blocks < 0) stats_.inactive_split.remove(kKind, -added_blocks);
  stats_.inactive_split_bytes.add(kKind, bytes_of(added_units));
}

SmallSegment* SmallPool::add_segment(char* base) {
  // Zero pages read as records that start no block; only pages with a block on them are ever touched.
  void* memory = map_pages(sizeof(SmallSegment));
  if (memory == nullptr) throw std::bad_alloc();
  auto* segment = static_cast<SmallSegment*>(memory);
  segment->pool = this;
  segment->base = base;
  SmallBlock& whole = segment->blocks[0];
  whole.units = kSmallUnits;
  whole.state = SmallBlock::kFree;
  link(whole);
  return segment;
}

void SmallPool::remove_segment(SmallSegment* segment) {
  unlink(segment->blocks[0]);
  destroy(segment);
}

void SmallPool::destroy(SmallSegment* segment) { unmap_pages(segment, sizeof(SmallSegment)); }

SmallSegment* SmallPool::unused_segment() const {
  SmallBlock* whole = bins_[kSmallUnits - 1];
  return whole == nullptr ? nullptr : &segment_of(*whole);
}

}  // namespace cann
