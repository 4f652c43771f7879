#pragma once
// From an HBM address to the allocator's record of the block there, in one load.
//
// One word per MiB of the server's HBM addresses. That is enough, because a small block lies in a 2 MiB aligned segment
// which knows its own blocks, and a large block is longer than 1 MiB, so that no MiB holds the start of two.
// Words are written by the heap that owns the address, under its lock, before the block is handed out; reading needs no
// lock. The table itself is virtual memory, touched where segments are. Torch-free.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cann {

struct SmallSegment;
struct LargeBlock;

class AddressMap {
 public:
  // Covers [begin, end), both multiples of 2 MiB. Throws std::bad_alloc.
  AddressMap(uintptr_t begin, uintptr_t end);
  ~AddressMap();
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  bool contains(const void* ptr) const { return reinterpret_cast<uintptr_t>(ptr) - begin_ < span_; }

  // At most one of the two is set.
  struct Entry {
    SmallSegment* small = nullptr;
    LargeBlock* large = nullptr;
  };
  // What starts in, or covers, the MiB of `ptr`. Precondition: contains(ptr).
  Entry find(const void* ptr) const {
    const uintptr_t word = word_of(ptr).load(std::memory_order_relaxed);
    if (word & kSmallTag) return {reinterpret_cast<SmallSegment*>(word & ~kSmallTag), nullptr};
    return {nullptr, reinterpret_cast<LargeBlock*>(word)};
  }

  void set_small(const void* segment_base, SmallSegment* segment) {
    const uintptr_t word = segment == nullptr ? 0 : reinterpret_cast<uintptr_t>(segment) | kSmallTag;
    const auto* base = static_cast<const char*>(segment_base);
    word_of(base).store(word, std::memory_order_relaxed);
    word_of(base + (size_t{1} << kShift)).store(word, std::memory_order_relaxed);
  }
  void set_large(const void* block_start, LargeBlock* block) {
    word_of(block_start).store(reinterpret_cast<uintptr_t>(block), std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kShift = 20;
  static constexpr uintptr_t kSmallTag = 1;

  std::atomic<uintptr_t>& word_of(const void* ptr) const {
    return words_[(reinterpret_cast<uintptr_t>(ptr) - begin_) >> kShift];
  }

  uintptr_t begin_;
  size_t span_;
  std::atomic<uintptr_t>* words_;
};

}  // namespace cann
