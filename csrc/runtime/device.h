#pragma once
// Which card the calling thread uses, and whether the device may be used at all. The current card is per thread, 0 at
// first.
//
// Thread-safe. Initialisation happens once per process; a child forked afterwards is in a "bad fork", where everything
// that would initialise raises.

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>

#include "runtime/thread_local.h"

namespace cann {

inline constexpr c10::DeviceType kNPU = c10::DeviceType::PrivateUse1;

namespace detail {
extern CANN_FAST_THREAD_LOCAL c10::DeviceIndex t_current_device;
extern std::atomic<bool> g_initialized;
void initialize();
}  // namespace detail

// Cards this process sees; never initialises the device. 0, with a warning, when the environment is malformed.
c10::DeviceIndex device_count() noexcept;

// Current card of the calling thread.
inline c10::DeviceIndex current_device() noexcept { return detail::t_current_device; }

// True once the device is initialised in this process.
inline bool is_initialized() noexcept { return detail::g_initialized.load(std::memory_order_acquire); }

// True in a child forked after its parent initialised the device: nothing works there.
bool is_in_bad_fork() noexcept;

// Initialises the device: builds the Server, registers the fork handler. Raises RuntimeError in a bad fork, when no
// card is visible and for a malformed environment. Idempotent and cheap (one load) after the first call.
inline void lazy_init() {
  if (C10_UNLIKELY(!is_initialized())) detail::initialize();
}

// Initialises the device. Raises RuntimeError "Invalid NPU device ID" for an index outside [0, device_count()).
void set_device(c10::DeviceIndex index);
// For guards: `index` came from a valid device. Does not initialise.
inline void unchecked_set_device(c10::DeviceIndex index) noexcept { detail::t_current_device = index; }

// `index` itself, or the current card for -1; raises RuntimeError when out of range. Does not initialise.
c10::DeviceIndex checked_index(c10::DeviceIndex index);

}  // namespace cann
