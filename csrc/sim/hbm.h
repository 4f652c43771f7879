#pragma once
// The high-bandwidth memory of the server's cards: a range of addresses per card, backed by host memory only once
// touched.
//
// One reservation holds all cards, so card_of() is arithmetic. A segment is what the caching allocator reserves from
// a card (aclrtMalloc's role); its pages are zero and untouched at first, and go back to the host when it is released.
// Owned by Server. Thread-safe.
//
// The memory is private and anonymous until share() is called; segments reserved after that lie in a memfd that other
// processes of the host can map, which is what makes collectives between them free of copies. Segments reserved before
// stay as they are. The price of shared memory is that the kernel gives it no huge pages unless told to, so a process
// without peers never asks for it. A forked child gets a private copy of either kind, so that what it does leaves its
// parent's memory alone (of shared memory the child sees what the parent writes to pages it has not written itself).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace cann::sim {

// Granularity of segments: 2 MiB, the device's huge page.
inline constexpr size_t kSegmentGranularity = size_t{2} << 20;

class Hbm {
 public:
  // What is behind addresses: memory, in huge pages if the kernel will; or, of segments above kSegmentGranularity,
  // nothing, so that touching them faults.
  enum class Backing { kSmallPages, kHugePages, kProtected };

  // `cards` ranges of `capacity` usable bytes each, both positive. Throws std::system_error if the address space cannot
  // be reserved even at one times the capacity per card.
  Hbm(int cards, size_t capacity, Backing backing);
  Hbm(int cards, size_t capacity, bool huge_pages)
      : Hbm(cards, capacity, huge_pages ? Backing::kHugePages : Backing::kSmallPages) {}
  ~Hbm();
  Hbm(const Hbm&) = delete;
  Hbm& operator=(const Hbm&) = delete;

  // A segment of `bytes` (a multiple of kSegmentGranularity) on `card`, or nullptr when used + bytes would exceed
  // capacity (or, should the stride have been cut down, when no free range of addresses is long enough).
  void* reserve(int card, size_t bytes);
  // Gives a segment back; `ptr` and `bytes` must be those of one reserve().
  void release(int card, void* ptr, size_t bytes);

  // Counts bytes that occupy the card but need no addresses here (contexts, communicator buffers). False, and nothing
  // counted, when used + bytes would exceed capacity.
  bool charge(int card, size_t bytes);
  void discharge(int card, size_t bytes);

  size_t capacity() const { return capacity_; }
  // Bytes in segments plus bytes charged.
  size_t used(int card) const;

  // Backs what is not in use by a memfd from here on; does nothing when that has been done. Throws std::system_error,
  // and changes nothing, when the host refuses.
  void share();
  // The memfd, owned by this; -1 before share(). Its size is that of all cards' ranges, sealed, and readable by this
  // user alone.
  int shared_fd() const { return shared_fd_.load(std::memory_order_acquire); }
  // Offset of [ptr, ptr + bytes) in the memfd; nullopt if any of it is elsewhere.
  std::optional<uint64_t> shared_offset(const void* ptr, size_t bytes) const;

  bool contains(const void* ptr) const {
    auto p = reinterpret_cast<uintptr_t>(ptr);
    return p >= begin_ && p < end_;
  }
  // Precondition: contains(ptr).
  int card_of(const void* ptr) const { return static_cast<int>((reinterpret_cast<uintptr_t>(ptr) - begin_) / stride_); }
  uintptr_t begin() const { return begin_; }
  uintptr_t end() const { return end_; }
  // Address range given to each card: 4 times its capacity, so that fragmentation of addresses does not limit; less
  // where the host refuses that much address space.
  size_t stride() const { return stride_; }

 private:
  struct CardRange {
    mutable std::mutex mutex;
    size_t used = 0;
    std::map<uintptr_t, size_t> free;  // address -> bytes, coalesced
    // What was in use when share() was called and has not been released since; address -> end.
    std::map<uintptr_t, uintptr_t> unshared;
  };
  bool fits(const CardRange& range, size_t bytes) const { return bytes <= capacity_ - range.used; }
  void share_free_ranges(CardRange& range, uintptr_t begin);
  // Puts the memfd behind [begin, end), which must not be in use. False, with errno set, when the kernel refuses.
  bool map_shared(uintptr_t begin, uintptr_t end);
  // Replaces what is behind a segment given back by zero pages.
  void empty_segment(CardRange& range, uintptr_t begin, uintptr_t end);
  void make_private_after_fork() noexcept;

  uintptr_t begin_ = 0, end_ = 0;
  size_t stride_ = 0, capacity_ = 0;
  Backing backing_;
  void* mapping_ = nullptr;  // what mmap gave; begin_ is this, aligned
  size_t mapping_bytes_ = 0;
  std::mutex sharing_;
  std::atomic<int> shared_fd_{-1};
  std::vector<CardRange> cards_;
};

}  // namespace cann::sim
