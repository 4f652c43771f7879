#pragma once
// Zeroed, page-aligned memory straight from the kernel, untouched until used: for metadata that is mostly empty and for
// pinned host blocks. Torch-free, thread-safe.

#include <sys/mman.h>

#include <cstddef>

namespace cann {

// nullptr when the kernel refuses.
inline void* map_pages(size_t bytes) {
  void* ptr = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return ptr == MAP_FAILED ? nullptr : ptr;
}

// `ptr` and `bytes` of one map_pages().
inline void unmap_pages(void* ptr, size_t bytes) { munmap(ptr, bytes); }

}  // namespace cann
