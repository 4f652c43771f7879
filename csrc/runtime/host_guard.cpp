#include "runtime/host_guard.h"

#include <c10/util/Exception.h>

#include <string>

#include <fmt/format.h>

#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "sim/env.h"
#include "sim/host_memory.h"
#include "sim/server.h"

namespace cann {

void detail::check_large_write(const void* ptr, size_t bytes) {
  const size_t margin = sim::Env::get().host_margin_bytes;
  if (C10_LIKELY(sim::host_can_write(ptr, bytes, margin))) return;
  // Cached segments may hold pages that nobody needs.
  if (is_initialized()) caching_allocator::empty_cache();
  if (sim::host_can_write(ptr, bytes, margin)) return;
  const bool on_card = is_initialized() && sim::Server::get().hbm().contains(ptr);
  const int card = on_card ? sim::Server::get().hbm().card_of(ptr) : -1;
  raise_host_out_of_memory(bytes, static_cast<c10::DeviceIndex>(card));
}

void raise_host_out_of_memory(size_t bytes, c10::DeviceIndex device) {
  using c10::CachingAllocator::format_size;
  const std::string where = device >= 0 ? fmt::format("NPU {}", device) : std::string("host memory");
  const std::string text = fmt::format(
      "NPU out of memory. Tried to allocate {} ({}), but the host cannot back it: the host has {} available, of which "
      "{} "
      "are kept free. HBM of a simulated NPU is host memory; free some, use smaller tensors or batches, or lower "
      "TORCH_CANN_HOST_MARGIN_MB.",
      format_size(bytes), where, format_size(sim::host_memory_available()),
      format_size(sim::Env::get().host_margin_bytes));
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

}  // namespace cann
