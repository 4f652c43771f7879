#include "runtime/device_heaps.h"

#include <pthread.h>

#include <c10/util/Exception.h>

#include <mutex>
#include <stdexcept>

#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/errors.h"
#include "runtime/memory_trace.h"
#include "sim/env.h"
#include "sim/server.h"

namespace cann {

constinit std::atomic<DeviceHeaps*> DeviceHeaps::instance_{nullptr};
constinit std::atomic<AddressMap*> DeviceHeaps::addresses_of_process_{nullptr};

namespace {

// Guards the options, and the making of the heaps, which start from them.
constinit std::mutex g_config_mutex;

void apply_or_raise(AllocatorConfig& config, const std::string& settings) {
  std::string problem;
  try {
    config.apply(settings);
  } catch (const std::invalid_argument& error) {
    problem = error.what();
  }
  TORCH_CHECK_VALUE(problem.empty(), problem, error_suffix(ErrModule::PTA, ErrCode::PARAM));
}

// Caller holds g_config_mutex.
AllocatorConfig& current_config() {
  static AllocatorConfig config = [] {
    AllocatorConfig initial;
    initial.caching = sim::Env::get().memory_caching;
    apply_or_raise(initial, sim::Env::get().alloc_conf);
    return initial;
  }();
  return config;
}

// Handlers round fork(): no other thread is inside the allocator meanwhile, so the child's copy is whole. A grandchild
// of the process that made the heaps has none to lock: nothing but free() is used there.
void lock_all() {
  g_config_mutex.lock();
  if (DeviceHeaps* heaps = DeviceHeaps::if_initialized()) {
    for (const auto& heap : *heaps) heap->lock_for_fork();
  }
}

void unlock_all() {
  if (DeviceHeaps* heaps = DeviceHeaps::if_initialized()) {
    for (const auto& heap : *heaps) heap->unlock_after_fork();
  }
  g_config_mutex.unlock();
}

}  // namespace

DeviceHeaps::DeviceHeaps()
    : addresses_(sim::Server::get().hbm().begin(), sim::Server::get().hbm().end()),
      host_(sim::Env::get().host_margin_bytes, !dry_run()) {
  sim::Server& server = sim::Server::get();
  for (int card = 0; card < server.card_count(); ++card) {
    heaps_.push_back(std::make_unique<DeviceHeap>(server.hbm(), addresses_, host_, card, current_config()));
  }
}

DeviceHeaps& DeviceHeaps::initialize() {
  lazy_init();
  const std::lock_guard lock(g_config_mutex);
  if (DeviceHeaps* made = instance_.load(std::memory_order_relaxed)) return *made;
  auto* heaps = new DeviceHeaps();
  addresses_of_process_.store(&heaps->addresses_, std::memory_order_release);
  instance_.store(heaps, std::memory_order_release);
  pthread_atfork(lock_all, unlock_all, [] {
    unlock_all();
    MemoryTrace::disable_after_fork();
    instance_.store(nullptr, std::memory_order_release);  // a bad fork: get() must raise
  });
  return *heaps;
}

AllocatorConfig allocator_config() {
  const std::lock_guard lock(g_config_mutex);
  return current_config();
}

void apply_allocator_settings(const std::string& settings) {
  const std::lock_guard lock(g_config_mutex);
  AllocatorConfig changed = current_config();
  changed.memory_fraction.reset();
  apply_or_raise(changed, settings);
  current_config() = changed;
  DeviceHeaps* heaps = DeviceHeaps::if_initialized();
  if (heaps == nullptr) return;
  for (const auto& heap : *heaps) {
    heap->set_config(changed);
    if (changed.memory_fraction) heap->set_memory_fraction(*changed.memory_fraction);
  }
}

}  // namespace cann
