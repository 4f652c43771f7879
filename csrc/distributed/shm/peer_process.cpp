#include "distributed/shm/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

namespace cann::hccl {
namespace {

using Key = std::tuple<int32_t, uint64_t, uint64_t>;

struct Registry {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<PeerProcess>> peers;
};

Registry& registry() {
  static auto* const made = new Registry();  // outlives process groups that are destroyed at exit
  return *made;
}

}  // namespace

uint64_t start_time_of(int32_t pid, char* state) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may hold anything; fields are counted behind it, where field 3 is the first.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 3 && state != nullptr) *state = field[0];
    if (number == 22) return std::stoull(field);
  }
  return 0;
}

std::shared_ptr<PeerProcess> PeerProcess::find(const ProcessId& id) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto& entry = all.peers[{id.pid, id.start_time, id.hbm.inode}];
  auto peer = entry.lock();
  if (!peer) {
    peer.reset(new PeerProcess(id));
    entry = peer;
    std::erase_if(all.peers, [](const auto& item) { return item.second.expired(); });
  }
  return peer;
}

PeerProcess::PeerProcess(const ProcessId& id) : id_(id) {
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0));
  if (pidfd_ < 0) {
    throw std::runtime_error(
        fmt::format("process {} cannot be watched: {}", id.pid, std::generic_category().message(errno)));
  }
  try {
    // Asked after the pidfd is held: from here on the number cannot pass to another process unnoticed.
    if (start_time_of(id.pid) != id.start_time) throw std::runtime_error(fmt::format("process {} is gone", id.pid));
    if (id.hbm.fd >= 0) hbm_fd_ = open_memory(id.hbm);
  } catch (...) {
    close(pidfd_);
    throw;
  }
}

PeerProcess::~PeerProcess() {
  for (const auto& [card, mapped] : cards_) munmap(mapped, id_.bytes_per_card);
  if (hbm_fd_ >= 0) close(hbm_fd_);
  close(pidfd_);
}

bool PeerProcess::has_ended() const {
  pollfd watched{pidfd_, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

bool PeerProcess::is_stopped() const {
  char state = 0;
  start_time_of(id_.pid, &state);
  return state == 'T' || state == 't';
}

std::byte* PeerProcess::hbm(uint64_t offset, uint64_t bytes) {
  if (hbm_fd_ < 0 || id_.bytes_per_card == 0 || offset >= id_.hbm.bytes) return nullptr;
  const uint64_t card = offset / id_.bytes_per_card;
  const uint64_t inside = offset % id_.bytes_per_card;
  if (bytes > id_.bytes_per_card - inside || bytes > id_.hbm.bytes - offset) return nullptr;
  std::byte* begin = map_card(card);
  return begin == nullptr ? nullptr : begin + inside;
}

std::byte* PeerProcess::map_card(uint64_t card) {
  std::lock_guard lock(mutex_);
  if (const auto known = cards_.find(card); known != cards_.end()) return known->second;
  void* mapped = mmap(nullptr, id_.bytes_per_card, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, hbm_fd_,
                      static_cast<off_t>(card * id_.bytes_per_card));
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, id_.bytes_per_card, MADV_DONTFORK);
  madvise(mapped, id_.bytes_per_card, MADV_DONTDUMP);
  return cards_.emplace(card, static_cast<std::byte*>(mapped)).first->second;
}

}  // namespace cann::hccl
