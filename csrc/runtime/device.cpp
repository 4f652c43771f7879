#include "runtime/device.h"

#include <pthread.h>

#include <c10/util/Exception.h>

#include <exception>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "runtime/errors.h"
#include "runtime/process_record.h"
#include "runtime/simulator.h"
#include "sim/env.h"
#include "sim/server.h"

namespace cann {

namespace detail {
CANN_FAST_THREAD_LOCAL c10::DeviceIndex t_current_device = 0;
constinit std::atomic<bool> g_initialized{false};
}  // namespace detail

namespace {

constinit std::atomic<bool> g_bad_fork{false};
// Valid once initialised; spares the hot callers of device_count() the Server's checks.
constinit std::atomic<c10::DeviceIndex> g_count{0};

void mark_child_of_fork() {
  if (!detail::g_initialized.load(std::memory_order_relaxed)) return;
  g_bad_fork.store(true, std::memory_order_relaxed);
  detail::g_initialized.store(false, std::memory_order_relaxed);
}

std::string valid_range(c10::DeviceIndex count) {
  if (count == 0) return "this process sees no NPU (see ASCEND_RT_VISIBLE_DEVICES)";
  if (count == 1) return "this process sees 1 NPU, npu:0";
  return fmt::format("this process sees {} NPUs, npu:0 to npu:{}", count, count - 1);
}

void check_range(c10::DeviceIndex index) {
  const c10::DeviceIndex count = device_count();
  TORCH_CHECK(index >= 0 && index < count, "Invalid NPU device ID: got ", static_cast<int>(index), ", but ",
              valid_range(count),
              ". Use an index in that range, or show more cards with ASCEND_RT_VISIBLE_DEVICES or "
              "TORCH_CANN_DEVICE_COUNT.",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
}

}  // namespace

void detail::initialize() {
  TORCH_CHECK(
      !is_in_bad_fork(),
      "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the 'spawn' "
      "start method",
      error_suffix(ErrModule::PTA, ErrCode::NOT_SUPPORT));
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_initialized.load(std::memory_order_relaxed)) return;
  std::string problem;
  try {
    g_count.store(static_cast<c10::DeviceIndex>(sim::Server::get().card_count()), std::memory_order_relaxed);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  TORCH_CHECK(problem.empty(), "Cannot initialize NPU: ", problem, error_suffix(ErrModule::PTA, ErrCode::UNAVAIL));
  pthread_atfork(nullptr, nullptr, mark_child_of_fork);
  process_record::open();
  g_initialized.store(true, std::memory_order_release);
  for (const std::string& warning : sim::Env::get().warnings) TORCH_WARN(warning);
  if (sim::Env::get().simulate || sim::Env::get().dry_run) simulator::set_on(true);
}

c10::DeviceIndex device_count() noexcept {
  if (C10_LIKELY(is_initialized())) return g_count.load(std::memory_order_relaxed);
  try {
    return static_cast<c10::DeviceIndex>(sim::Server::visible_card_count());
  } catch (const std::exception& error) {
    try {
      TORCH_WARN_ONCE("No NPU is usable: ", error.what());
    } catch (...) {
      // A warning turned into an error cannot leave a noexcept function; lazy_init() raises the cause itself.
    }
    return 0;
  }
}

bool is_in_bad_fork() noexcept { return g_bad_fork.load(std::memory_order_relaxed); }

void set_device(c10::DeviceIndex index) {
  lazy_init();
  check_range(index);
  detail::t_current_device = index;
}

c10::DeviceIndex checked_index(c10::DeviceIndex index) {
  if (index == -1) index = current_device();
  if (C10_LIKELY(index >= 0 && index < device_count())) return index;
  check_range(index);
  return index;
}

}  // namespace cann
