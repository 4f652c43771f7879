#include "distributed/shm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "sim/memfd.h"

namespace cann::hccl {
namespace {

[[noreturn]] void raise_errno(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// What is wrong with a descriptor that should be the memfd `id`; "" if nothing.
std::string objection(int fd, const MemoryId& id) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return "its status cannot be read";
  if (!S_ISREG(status.st_mode) || status.st_ino != id.inode) return "it is another file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if (static_cast<uint64_t>(status.st_size) != id.bytes) return "it has another size";
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return "it is not sealed against shrinking";
  return "";
}

}  // namespace

MemoryId id_of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) raise_errno("cannot read the status of shared memory");
  return {getpid(), fd, status.st_ino, static_cast<uint64_t>(status.st_size)};
}

int open_memory(const MemoryId& id) {
  const std::string path = fmt::format("/proc/{}/fd/{}", id.pid, id.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error(fmt::format("cannot open {}: {}", path, std::generic_category().message(errno)));
  const std::string problem = objection(fd, id);
  if (problem.empty()) return fd;
  close(fd);
  throw std::runtime_error(fmt::format("{} is not the memory that was announced: {}", path, problem));
}

SharedMemory::SharedMemory(int fd, size_t bytes) : fd_(fd), bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(fd);
    throw std::system_error(error, std::generic_category(), "cannot map shared memory");
  }
  data_ = static_cast<std::byte*>(mapped);
  madvise(mapped, bytes, MADV_DONTFORK);
  madvise(mapped, bytes, MADV_DONTDUMP);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

SharedMemory SharedMemory::create(const char* name, size_t bytes) { return {sim::make_memfd(name, bytes), bytes}; }

SharedMemory SharedMemory::open(const MemoryId& id) { return {open_memory(id), id.bytes}; }

}  // namespace cann::hccl
