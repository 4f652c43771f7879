#pragma once
// Another rank's process on this host: whether it lives, and its cards' memory.
//
// Groups that have a peer in common share the object (find()), and with it one mapping of the peer's HBM. Thread-safe.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "distributed/shm/shared_memory.h"

namespace cann::hccl {

// What a process tells the others about itself.
struct ProcessId {
  int32_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/pid/stat: tells processes with a recycled pid apart
  // Its shared HBM, fd -1 if it has none, and the bytes of it that each card takes.
  MemoryId hbm;
  uint64_t bytes_per_card = 0;
};

// Of process `pid`; 0 if there is none. `state` receives its state letter ('T': stopped), if wanted.
uint64_t start_time_of(int32_t pid, char* state = nullptr);

class PeerProcess {
 public:
  // Throws std::runtime_error when the process cannot be watched, or its HBM cannot be opened.
  static std::shared_ptr<PeerProcess> find(const ProcessId& id);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  int32_t pid() const { return id_.pid; }
  bool has_ended() const;
  bool is_stopped() const;

  // [offset, offset + bytes) of its HBM in this process's address space. nullptr if that is not inside the range of one
  // card, or cannot be mapped: what a peer says is not to be trusted.
  std::byte* hbm(uint64_t offset, uint64_t bytes);

 private:
  explicit PeerProcess(const ProcessId& id);
  std::byte* map_card(uint64_t card);

  const ProcessId id_;
  int pidfd_ = -1;
  int hbm_fd_ = -1;
  std::mutex mutex_;
  std::map<uint64_t, std::byte*> cards_;
};

}  // namespace cann::hccl
