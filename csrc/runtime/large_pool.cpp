#include "runtime/large_pool.h"

namespace cann {
namespace {

constexpr PoolKind kKind = PoolKind::kLarge;

// A remainder is only worth a block of its own above this; so every block of the pool is longer than 1 MiB, on which
// AddressMap relies.
constexpr size_t kMinRemainder = kMaxSmallRequest;

int64_t bytes_of(const LargeBlock& block) { return static_cast<int64_t>(block.size); }

}  // namespace

bool LargePool::may_split(size_t block_size, size_t size) const {
  return config_.caching && size < config_.max_split_size && block_size - size > kMinRemainder;
}

LargeBlock* LargePool::take(size_t size, size_t requested) {
  const auto it = free_.lower_bound({size, nullptr});
  if (it == free_.end()) return nullptr;
  LargeBlock* block = it->second;
  const bool oversize_block = block->size >= config_.max_split_size;
  if (size < config_.max_split_size && oversize_block) return nullptr;
  if (size >= config_.max_split_size && block->size - size >= config_.max_non_split_rounding) return nullptr;
  free_.erase(it);

  if (!block->whole()) {
    stats_.inactive_split.remove(kKind, 1);
    stats_.inactive_split_bytes.remove(kKind, bytes_of(*block));
  }
  if (may_split(block->size, size)) {
    auto* rest = new LargeBlock{.pool = this, .ptr = block->ptr + size, .size = block->size - size};
    rest->before = block;
    rest->after = block->after;
    rest->freed_at = block->freed_at;
    if (rest->after != nullptr) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    addresses_.set_large(rest->ptr, rest);
    link(rest);
    stats_.inactive_split.add(kKind, 1);
    stats_.inactive_split_bytes.add(kKind, bytes_of(*rest));
  }
  block->live = true;
  block->requested = requested;
  stats_.allocation.add(kKind, 1);
  stats_.allocated_bytes.add(kKind, bytes_of(*block));
  stats_.requested_bytes.add(kKind, static_cast<int64_t>(requested));
  block->oversize = oversize_block;
  if (oversize_block) stats_.oversize_allocation.add(kKind, 1);
  return block;
}

void LargePool::absorb_next(LargeBlock* block) {
  LargeBlock* next = block->after;
  addresses_.set_large(next->ptr, nullptr);
  block->size += next->size;
  block->after = next->after;
  if (block->after != nullptr) block->after->before = block;
  delete next;
}

LargeBlock* LargePool::give(LargeBlock& freed) {
  stats_.allocation.remove(kKind, 1);
  stats_.allocated_bytes.remove(kKind, bytes_of(freed));
  stats_.requested_bytes.remove(kKind, static_cast<int64_t>(freed.requested));
  if (freed.oversize) stats_.oversize_allocation.remove(kKind, 1);

  LargeBlock* block = &freed;
  for (LargeBlock* neighbour : {freed.after, freed.before}) {
    if (neighbour == nullptr || neighbour->live) continue;
    unlink(neighbour);
    stats_.inactive_split.remove(kKind, 1);
    stats_.inactive_split_bytes.remove(kKind, bytes_of(*neighbour));
    if (neighbour == freed.before) block = neighbour;
    absorb_next(block);
  }
  block->live = false;
  block->freed_at = ++stats_.large_frees;
  link(block);
  if (!block->whole()) {
    stats_.inactive_split.add(kKind, 1);
    stats_.inactive_split_bytes.add(kKind, bytes_of(*block));
  }
  return block;
}

LargeBlock* LargePool::add_segment(char* base, size_t bytes) {
  auto* block = new LargeBlock{.pool = this, .ptr = base, .size = bytes};
  addresses_.set_large(base, block);
  link(block);
  return block;
}

void LargePool::remove_segment(LargeBlock* block) {
  unlink(block);
  addresses_.set_large(block->ptr, nullptr);
  delete block;
}

LargeBlock* LargePool::unused_segment(size_t bytes) const {
  for (auto it = free_.lower_bound({bytes, nullptr}); it != free_.end(); ++it) {
    if (it->second->whole()) return it->second;
  }
  return nullptr;
}

LargeBlock* LargePool::oldest_unused_segment() const {
  LargeBlock* oldest = nullptr;
  for (const auto& [key, block] : free_) {
    if (block->whole() && (oldest == nullptr || block->freed_at < oldest->freed_at)) oldest = block;
  }
  return oldest;
}

LargeBlock* LargePool::largest_oversize_segment() const {
  for (auto it = free_.rbegin(); it != free_.rend() && it->first.first >= config_.max_split_size; ++it) {
    if (it->second->whole()) return it->second;
  }
  return nullptr;
}

}  // namespace cann
