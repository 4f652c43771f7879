#include "sim/hbm.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "sim/memfd.h"

namespace cann::sim {
namespace {

constexpr size_t kMaxStrideFactor = 4;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// nullptr, with errno set, when the kernel refuses.
void* map_address_range(size_t bytes, int protection) {
  void* ptr = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return ptr == MAP_FAILED ? nullptr : ptr;
}

// The one Hbm with shared memory, for the handler of fork().
std::atomic<Hbm*> g_shared{nullptr};

}  // namespace

Hbm::Hbm(int cards, size_t capacity, Backing backing)
    : capacity_(capacity), backing_(backing), cards_(static_cast<size_t>(cards)) {
  if (cards <= 0 || capacity == 0) throw std::invalid_argument("Hbm needs at least one card and one byte.");
  const size_t padded_capacity = round_up(capacity, kSegmentGranularity);
  // A host may limit address space (ulimit -v, vm.overcommit_memory=2): each retry asks for less slack.
  for (size_t factor = kMaxStrideFactor; factor >= 1 && mapping_ == nullptr; factor /= 2) {
    stride_ = padded_capacity * factor;
    mapping_bytes_ = stride_ * cards_.size() + kSegmentGranularity;
    mapping_ = map_address_range(mapping_bytes_, backing == Backing::kProtected ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
  if (mapping_ == nullptr) {
    throw std::system_error(
        errno, std::generic_category(),
        fmt::format(
            "Cannot reserve {:.1f} GiB of address space for the HBM of {} simulated NPUs. Lower TORCH_CANN_HBM_MB "
            "or TORCH_CANN_DEVICE_COUNT, or raise the limit (ulimit -v, vm.overcommit_memory)",
            static_cast<double>(mapping_bytes_) / (1 << 30), cards));
  }
  begin_ = round_up(reinterpret_cast<uintptr_t>(mapping_), kSegmentGranularity);
  end_ = begin_ + stride_ * cards_.size();
  // A hint only: a kernel without transparent huge pages refuses it, and small pages serve as well.
  if (backing == Backing::kHugePages) madvise(reinterpret_cast<void*>(begin_), end_ - begin_, MADV_HUGEPAGE);
  for (size_t card = 0; card < cards_.size(); ++card) cards_[card].free.emplace(begin_ + card * stride_, stride_);
}

Hbm::~Hbm() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  if (Hbm* self = this; g_shared.compare_exchange_strong(self, nullptr)) {
    if (const int fd = shared_fd(); fd >= 0) close(fd);
  }
}

void* Hbm::reserve(int card, size_t bytes) {
  CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  if (bytes == 0 || !fits(range, bytes)) return nullptr;
  // First fit from the lowest address keeps the touched part of the range dense.
  for (auto it = range.free.begin(); it != range.free.end(); ++it) {
    const auto [address, length] = *it;
    if (length < bytes) continue;
    range.free.erase(it);
    if (length > bytes) range.free.emplace(address + bytes, length - bytes);
    if (backing_ == Backing::kProtected && bytes <= kSegmentGranularity &&
        mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE) != 0) {
      range.free.emplace(address, bytes);
      return nullptr;
    }
    range.used += bytes;
    return reinterpret_cast<void*>(address);
  }
  return nullptr;
}

void Hbm::release(int card, void* ptr, size_t bytes) {
  CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  range.used -= bytes;
  auto address = reinterpret_cast<uintptr_t>(ptr);
  empty_segment(range, address, address + bytes);
  auto after = range.free.lower_bound(address);
  if (after != range.free.end() && address + bytes == after->first) {
    bytes += after->second;
    after = range.free.erase(after);
  }
  if (after != range.free.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  range.free.emplace_hint(after, address, bytes);
}

bool Hbm::charge(int card, size_t bytes) {
  CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  if (!fits(range, bytes)) return false;
  range.used += bytes;
  return true;
}

void Hbm::discharge(int card, size_t bytes) {
  CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  range.used -= bytes;
}

void Hbm::share() {
  std::lock_guard sharing(sharing_);
  if (shared_fd() >= 0) return;
  if (backing_ == Backing::kProtected) {
    throw std::system_error(ENOTSUP, std::generic_category(), "Memory that holds no values cannot be shared");
  }
  Hbm* nobody = nullptr;
  if (!g_shared.compare_exchange_strong(nobody, this)) {
    throw std::system_error(EBUSY, std::generic_category(), "Another Hbm of this process is shared already");
  }
  [[maybe_unused]] static const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
    if (Hbm* shared = g_shared.load()) shared->make_private_after_fork();
  });
  try {
    shared_fd_.store(make_memfd("torch_cann_hbm", end_ - begin_), std::memory_order_release);
  } catch (...) {
    g_shared.store(nullptr);
    throw;
  }
  for (size_t card = 0; card < cards_.size(); ++card) share_free_ranges(cards_[card], begin_ + card * stride_);
}

void Hbm::share_free_ranges(CardRange& range, uintptr_t begin) {
  std::lock_guard lock(range.mutex);
  const uintptr_t end = begin + stride_;
  uintptr_t next = begin;
  const auto keep_until = [&](uintptr_t address) {
    if (address > next) range.unshared.emplace(next, address);
  };
  for (const auto& [address, bytes] : range.free) {
    keep_until(address);
    // Where the kernel refuses (its limit of mappings), the range stays what it was, and is treated as in use.
    if (!map_shared(address, address + bytes)) range.unshared.emplace(address, address + bytes);
    next = address + bytes;
  }
  keep_until(end);
}

bool Hbm::map_shared(uintptr_t begin, uintptr_t end) {
  void* const address = reinterpret_cast<void*>(begin);
  const void* mapped = mmap(address, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                            shared_fd(), static_cast<off_t>(begin - begin_));
  if (mapped == MAP_FAILED) return false;
  if (backing_ == Backing::kHugePages) madvise(address, end - begin, MADV_HUGEPAGE);
  return true;
}

void Hbm::empty_segment(CardRange& range, uintptr_t begin, uintptr_t end) {
  // Pages read as zero again afterwards, so a later segment starts clean.
  if (shared_fd() < 0) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    if (backing_ == Backing::kProtected) mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE);
    return;
  }
  auto owner = range.unshared.upper_bound(begin);
  if (owner == range.unshared.begin() || std::prev(owner)->second <= begin) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
    return;
  }
  if (!map_shared(begin, end)) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    return;
  }
  --owner;
  const auto [from, to] = *owner;
  range.unshared.erase(owner);
  if (from < begin) range.unshared.emplace(from, begin);
  if (end < to) range.unshared.emplace(end, to);
}

std::optional<uint64_t> Hbm::shared_offset(const void* ptr, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(ptr);
  if (shared_fd() < 0 || !contains(ptr) || bytes > end_ - begin) return std::nullopt;
  const CardRange& range = cards_[static_cast<size_t>(card_of(ptr))];
  std::lock_guard lock(range.mutex);
  const auto after = range.unshared.lower_bound(begin);
  if (after != range.unshared.end() && after->first < begin + bytes) return std::nullopt;
  if (after != range.unshared.begin() && std::prev(after)->second > begin) return std::nullopt;
  return begin - begin_;
}

void Hbm::make_private_after_fork() noexcept {
  // No locks: another thread may have held them. Pages the child has not written stay those of the memfd.
  const int fd = shared_fd_.exchange(-1);
  if (fd < 0) return;
  for (size_t card = 0; card < cards_.size(); ++card) {
    uintptr_t next = begin_ + card * stride_;
    const uintptr_t end = next + stride_;
    const auto remap_until = [&](uintptr_t stop) {
      if (stop <= next) return;
      mmap(reinterpret_cast<void*>(next), stop - next, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
           fd, static_cast<off_t>(next - begin_));
    };
    for (const auto& [from, to] : cards_[card].unshared) {
      remap_until(from);
      next = to;
    }
    remap_until(end);
  }
}

size_t Hbm::used(int card) const {
  const CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  return range.used;
}

}  // namespace cann::sim
