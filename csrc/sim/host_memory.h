#pragma once
// How much memory the host can still give, so that we refuse before the kernel kills the process. Thread-safe.

#include <cstddef>
#include <string>

namespace cann::sim {

// Bytes this process can still touch: the lesser of MemAvailable and what its cgroups (v1 or v2) leave. Reads /proc and
// /sys anew, some tens of microseconds. SIZE_MAX when the system does not say.
size_t host_memory_available();
// The same for a file system whose root is `root` ("" is the real one); for tests.
size_t host_memory_available_at(const std::string& root);

// Bytes of [ptr, ptr + bytes) that have no page behind them yet (each would cost host memory when written).
size_t untouched_bytes(const void* ptr, size_t bytes);

// Whether writing [ptr, ptr + bytes) leaves at least `margin` bytes of host memory. `ptr` may be null: then all bytes
// are taken to be untouched. Cheap (tens of ns) when memory is ample: the reading of available memory is kept for a
// time that shrinks with what is left, and pages are only counted when bytes + margin exceed what is available.
bool host_can_write(const void* ptr, size_t bytes, size_t margin);

}  // namespace cann::sim
