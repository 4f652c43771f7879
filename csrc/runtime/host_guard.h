#pragma once
// Refuses writes to HBM that the host's memory could not back, before the kernel kills the process for them.
// Thread-safe.

#include <c10/core/Device.h>

#include <cstddef>

namespace cann {

namespace detail {
// Pages that have nothing behind them are counted only where so many bytes are written at once that it could matter.
inline constexpr size_t kCheckedWriteBytes = size_t{64} << 20;
void check_large_write(const void* ptr, size_t bytes);
}  // namespace detail

// Call before a kernel writes [ptr, ptr + bytes). Raises OutOfMemoryError naming the host's figures when that would
// leave less than Env::host_margin_bytes, even after the allocator's cache was emptied. Nothing below 64 MiB is
// checked.
inline void check_host_can_write(const void* ptr, size_t bytes) {
  if (bytes >= detail::kCheckedWriteBytes) detail::check_large_write(ptr, bytes);
}

// Raises that error for `bytes` wanted on `device` (-1: for pinned memory).
[[noreturn]] void raise_host_out_of_memory(size_t bytes, c10::DeviceIndex device);

}  // namespace cann
