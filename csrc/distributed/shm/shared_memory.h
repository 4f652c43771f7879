#pragma once
// Anonymous memory that processes of one user share: a memfd, never a name that another process could guess.
//
// The kernel frees it with the last process that holds it, however those end. Its size is sealed, so that a peer cannot
// make it end in the middle of an access.

#include <cstddef>
#include <cstdint>
#include <string>

namespace cann::hccl {

// Where a memfd is to be found: descriptor `fd` of a process. Exchanged between ranks through the store.
struct MemoryId {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t bytes = 0;
};

// The identity of this process's memfd `fd`. Throws std::system_error.
MemoryId id_of(int fd);

// A descriptor of the memfd that `id` names, owned by the caller. Throws std::runtime_error unless it can be opened,
// belongs to this user, is a memfd that cannot shrink, and is the one that was announced.
int open_memory(const MemoryId& id);

// A mapping of a whole memfd, unmapped on destruction; forked children do not have it. Movable.
class SharedMemory {
 public:
  // New memory of `bytes` zeros that costs nothing until touched. Throws std::system_error.
  static SharedMemory create(const char* name, size_t bytes);
  // open_memory(), mapped.
  static SharedMemory open(const MemoryId& id);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  MemoryId id() const { return id_of(fd_); }

 private:
  SharedMemory(int fd, size_t bytes);
  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace cann::hccl
