#include "sim/hbm.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

namespace cann::sim {
namespace {

constexpr size_t kMaxStrideFactor = 4;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// nullptr, with errno set, when the kernel refuses.
void* map_address_range(size_t bytes, int protection) {
  void* ptr = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return ptr == MAP_FAILED ? nullptr : ptr;
}

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
  // Private anonymous pages read as zero again afterwards, so a later segment starts clean.
  madvise(ptr, bytes, MADV_DONTNEED);
  if (backing_ == Backing::kProtected) mprotect(ptr, bytes, PROT_NONE);
  CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  range.used -= bytes;
  auto address = reinterpret_cast<uintptr_t>(ptr);
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

size_t Hbm::used(int card) const {
  const CardRange& range = cards_[static_cast<size_t>(card)];
  std::lock_guard lock(range.mutex);
  return range.used;
}

}  // namespace cann::sim
