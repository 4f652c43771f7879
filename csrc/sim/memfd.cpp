#include "sim/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cann::sim {
namespace {

// ftruncate() beyond the limit is a signal that ends the process.
bool size_is_allowed(size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

}  // namespace

int make_memfd(const char* name, size_t bytes) {
  const bool allowed = size_is_allowed(bytes);
  const int fd = allowed ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
  if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = allowed ? errno : EFBIG;
  if (fd >= 0) close(fd);
  throw std::system_error(error, std::generic_category(), "Cannot make shared memory");
}

}  // namespace cann::sim
