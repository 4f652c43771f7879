#include "runtime/caching_allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <array>
#include <unordered_set>

#include <fmt/format.h>

#include "runtime/device.h"
#include "runtime/device_heaps.h"
#include "runtime/errors.h"
#include "runtime/host_guard.h"
#include "runtime/memory_trace.h"
#include "runtime/sanitizer.h"
#include "runtime/stream.h"
#include "sim/server.h"

namespace cann::caching_allocator {
namespace {

using c10::CachingAllocator::format_size;

constexpr size_t kMaxRequest = size_t{1} << 60;  // 1 EiB
constexpr size_t kMaxDevices = 64;

[[noreturn]] void raise_out_of_memory(c10::DeviceIndex device, const OutOfMemory& why,
                                      const std::string& purpose = "") {
  if (why.reason == OutOfMemory::kHostFull) raise_host_out_of_memory(why.asked, device);
  if (why.reason == OutOfMemory::kBeyondFraction && allocator_config().reject_beyond_fraction) {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "NPU out of memory. Allocation was preemptively rejected because it would exceed "
                     "per_process_memory_fraction limit. Requested size: ",
                     format_size(why.asked));
  }
  // Active and allocated are the same here; clients parse both. The missing blank after the parenthesis is torch_npu's.
  const std::string text = fmt::format(
      "NPU out of memory. Tried to allocate {} (NPU {}; {} total capacity; {} already allocated; {} current active; "
      "{} free; {}{} reserved in total by PyTorch).If reserved memory is >> allocated memory try setting "
      "max_split_size_mb to avoid fragmentation.{}",
      format_size(why.asked), device, format_size(why.total), format_size(why.allocated), format_size(why.allocated),
      format_size(why.free), why.fraction_set ? format_size(why.allowed) + " allowed; " : "", format_size(why.reserved),
      purpose);
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

void report_to_profiler(void* ptr, int64_t bytes, c10::DeviceIndex device) {
  const auto [allocated, reserved] = DeviceHeaps::get()[device].usage();
  c10::reportMemoryUsageToProfiler(ptr, bytes, allocated, reserved, c10::Device(kNPU, device));
}

[[noreturn]] void refuse(c10::DeviceIndex device, int64_t stream, const OutOfMemory& why) {
  if (MemoryTrace::enabled()) MemoryTrace::get().refused(device, why.asked, why.free, stream);
  if (c10::memoryProfilingEnabled()) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(why.asked), why.allocated, why.reserved,
                                     c10::Device(kNPU, device));
  }
  raise_out_of_memory(device, why);
}

// Tells whoever watches of a new block. Off the common path.
void announce_allocation(AddressMap& addresses, void* ptr) {
  const LiveBlock block = DeviceHeap::live_block(addresses, ptr);
  if (MemoryTrace::enabled()) MemoryTrace::get().allocated(ptr, block);
  if (c10::memoryProfilingEnabled()) {
    report_to_profiler(ptr, static_cast<int64_t>(block.size), static_cast<c10::DeviceIndex>(block.card));
  }
}

void announce_free(AddressMap& addresses, void* ptr) noexcept {
  const LiveBlock block = DeviceHeap::live_block(addresses, ptr);
  if (block.size == 0) return;
  try {
    if (MemoryTrace::enabled()) MemoryTrace::get().freeing(ptr, block);
    if (c10::memoryProfilingEnabled() && is_initialized()) {
      report_to_profiler(ptr, -static_cast<int64_t>(block.size), static_cast<c10::DeviceIndex>(block.card));
    }
  } catch (...) {
    // An account that cannot be kept (no memory for it, an interpreter shutting down) must not stop the free.
  }
}

void warn_of_bad_free(const void* ptr) noexcept {
  try {
    TORCH_WARN("Ignored the free of ", ptr, ", at which no live NPU memory block starts (freed twice?).");
  } catch (...) {
    // Warnings may be turned into errors; a free must not raise.
  }
}

class NPUAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = current_device();
    void* ptr = caching_allocator::allocate(device, bytes);
    return {ptr, ptr, &caching_allocator::free, c10::Device(kNPU, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &caching_allocator::free; }
  void copy_data(void* dest, const void* src, size_t count) const override { default_copy_data(dest, src, count); }

  bool initialized() override { return is_initialized(); }
  void emptyCache(c10::MempoolId_t /*mempool_id*/) override { empty_cache(); }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override { record_stream(ptr, stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override { return stats(device); }
  void resetAccumulatedStats(c10::DeviceIndex device) override { reset_accumulated_stats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak_stats(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return memory_info(device); }
};

// An npu card's memory as the CPU sees it.
class HostViewAllocator final : public c10::Allocator {
 public:
  explicit HostViewAllocator(c10::DeviceIndex device) : device_(device) {}
  c10::DataPtr allocate(size_t bytes) override {
    void* ptr = caching_allocator::allocate(device_, bytes);
    return {ptr, ptr, &caching_allocator::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &caching_allocator::free; }
  void copy_data(void* dest, const void* src, size_t count) const override { default_copy_data(dest, src, count); }

 private:
  c10::DeviceIndex device_;
};

}  // namespace

void* allocate(c10::DeviceIndex device, size_t bytes) {
  DeviceHeaps& heaps = DeviceHeaps::get();
  if (C10_UNLIKELY(static_cast<size_t>(device) >= heaps.size())) device = checked_index(device);
  if (bytes == 0) return nullptr;
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= kMaxRequest,
                   "NPU out of memory. Tried to allocate more than 1EB memory.");
  const int64_t stream = current_stream(device).id();
  OutOfMemory why;
  void* ptr = heaps[device].allocate(stream, bytes, &why);
  if (C10_UNLIKELY(ptr == nullptr)) refuse(device, stream, why);
  if (C10_UNLIKELY(MemoryTrace::enabled() || c10::memoryProfilingEnabled())) {
    announce_allocation(*DeviceHeaps::addresses(), ptr);
  }
  if (sanitizer::on()) sanitizer::allocated(ptr, bytes, stream);
  return ptr;
}

void free(void* ptr) noexcept {
  if (ptr == nullptr) return;
  AddressMap* addresses = DeviceHeaps::addresses();
  if (C10_UNLIKELY(addresses == nullptr || !addresses->contains(ptr))) return warn_of_bad_free(ptr);
  if (C10_UNLIKELY(MemoryTrace::enabled() || c10::memoryProfilingEnabled())) announce_free(*addresses, ptr);
  if (sanitizer::on()) {
    const LiveBlock block = DeviceHeap::live_block(*addresses, ptr);
    sanitizer::freed(ptr, block.size, block.stream);
  }
  if (C10_UNLIKELY(!DeviceHeap::free(*addresses, ptr))) warn_of_bad_free(ptr);
}

c10::DeviceAllocator* npu_allocator() {
  static auto* const allocator = new NPUAllocator();
  return allocator;
}

c10::Allocator* host_view_allocator(c10::DeviceIndex device) {
  static const auto* const allocators = [] {
    auto* made = new std::array<HostViewAllocator*, kMaxDevices>();
    for (size_t i = 0; i < kMaxDevices; ++i) (*made)[i] = new HostViewAllocator(static_cast<c10::DeviceIndex>(i));
    return made;
  }();
  return (*allocators)[static_cast<size_t>(checked_index(device))];
}

void install_settings_hook() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  std::unordered_set<std::string> own_keys;
  for (const std::string_view name : AllocatorConfig::option_names()) {
    if (!Config::getKeys().contains(std::string(name))) own_keys.emplace(name);
  }
  Config::registerDeviceConfigParserHook(apply_allocator_settings, own_keys);
}

std::pair<void*, size_t> block_of(const void* ptr) {
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps == nullptr || !DeviceHeaps::addresses()->contains(ptr)) return {nullptr, 0};
  return (*heaps)[static_cast<c10::DeviceIndex>(sim::Server::get().hbm().card_of(ptr))].block_of(ptr);
}

void empty_cache() {
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps == nullptr) return;
  if (sanitizer::on()) sanitizer::host_wait_all();  // memory goes back when the card is idle
  for (const auto& heap : *heaps) heap->empty_cache();
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) {
  DeviceHeaps& heaps = DeviceHeaps::get();
  return {heaps[checked_index(device)].card_free(), sim::Server::get().hbm().capacity()};
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "Invalid fraction value: ", fraction,
                    ". The share of a card's memory must be from 0 to 1.",
                    error_suffix(ErrModule::PTA, ErrCode::VALUE));
  DeviceHeaps& heaps = DeviceHeaps::get();
  heaps[checked_index(device)].set_memory_fraction(fraction);
}

double memory_fraction(c10::DeviceIndex device) {
  DeviceHeaps& heaps = DeviceHeaps::get();
  return heaps[checked_index(device)].memory_fraction();
}

// Kernels have ended by the time the call that launched them returns. So when a block is freed no stream can still be
// using it, and there is nothing to remember: it may be reused at once.
void record_stream(const c10::DataPtr& ptr, c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kNPU,
              "record_stream() of an npu tensor needs an npu stream, but got a stream of ", stream.device(), ".",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
  TORCH_CHECK(ptr.get() == nullptr || ptr.device().type() == kNPU,
              "record_stream() with an npu stream needs an npu tensor, but got one on ", ptr.device(), ".",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
  if (sanitizer::on()) sanitizer::record_stream(ptr.get(), stream);
}

void set_allocator_settings(const std::string& settings) { apply_allocator_settings(settings); }

void add_external(c10::DeviceIndex device, size_t bytes, const char* what) {
  DeviceHeaps& heaps = DeviceHeaps::get();
  device = checked_index(device);
  OutOfMemory why;
  if (!heaps[device].charge(bytes, &why)) raise_out_of_memory(device, why, fmt::format(" It was for {}.", what));
}

void remove_external(c10::DeviceIndex device, size_t bytes) noexcept {
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps != nullptr && static_cast<size_t>(device) < heaps->size()) (*heaps)[device].discharge(bytes);
}

}  // namespace cann::caching_allocator
