#include "sim/server.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "sim/env.h"

namespace cann::sim {
namespace {

std::atomic<Server*> g_server{nullptr};

std::vector<int> visible_ids() {
  const int count = Env::get().device_count;
  if (auto ids = Env::visible_devices(count)) return *std::move(ids);
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Hbm::Backing backing() {
  if (Env::get().dry_run) return Hbm::Backing::kProtected;
  return Env::get().huge_pages ? Hbm::Backing::kHugePages : Hbm::Backing::kSmallPages;
}

std::vector<int> require_cards(std::vector<int> ids) {
  if (ids.empty()) {
    throw std::runtime_error(
        "No NPU is visible to this process: ASCEND_RT_VISIBLE_DEVICES names none. Unset it, or list ids such as "
        "\"0,1\".");
  }
  return ids;
}

}  // namespace

Server::Server()
    : soc_(find_soc(Env::get().soc)),
      physical_ids_(require_cards(visible_ids())),
      hbm_(card_count(), Env::get().hbm_bytes.value_or(soc_.usable_hbm_bytes), backing()) {
  for (int card = 0; card < card_count(); ++card) hbm_.charge(card, kContextBytes);
  // Under a launcher peers are to come: then what is allocated before the first group is shared as well.
  if (Env::get().shared_hbm && Env::local_world_size() > 1) share_hbm();
}

bool Server::share_hbm() {
  if (!Env::get().shared_hbm) return false;
  try {
    hbm_.share();
  } catch (const std::system_error&) {
    return false;  // collectives then copy
  }
  return true;
}

Server& Server::get() {
  // A constructor that throws leaves the variable unset, so that the next call tries again.
  static Server* const server = [] {
    auto* made = new Server();
    g_server.store(made, std::memory_order_release);
    return made;
  }();
  return *server;
}

bool Server::initialized() { return g_server.load(std::memory_order_acquire) != nullptr; }

int Server::visible_card_count() {
  if (const Server* server = g_server.load(std::memory_order_acquire)) return server->card_count();
  return static_cast<int>(visible_ids().size());
}

}  // namespace cann::sim
