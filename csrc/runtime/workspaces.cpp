#include "runtime/workspaces.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/caching_allocator.h"
#include "sim/server.h"

namespace cann::workspaces {
namespace {

struct Buffers {
  std::mutex mutex;
  std::map<c10::DeviceIndex, sim::Workspace> by_card;
};

Buffers& buffers() {
  static auto* const made = new Buffers();
  return *made;
}

}  // namespace

void reserve(const sim::OperatorDesc& op, c10::DeviceIndex device) {
  const sim::Workspace wanted = sim::workspace_of(op, sim::Server::get().soc());
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  sim::Workspace& held = all.by_card[device];
  if (wanted.bytes > held.bytes) {
    caching_allocator::add_external(device, static_cast<size_t>(wanted.bytes - held.bytes), "workspaces of operators");
  }
  held = {std::max(held.bytes, wanted.bytes), std::max(held.low, wanted.low), std::max(held.high, wanted.high)};
}

sim::Workspace reserved(c10::DeviceIndex device) {
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  return all.by_card[device];
}

}  // namespace cann::workspaces
