#pragma once
// Pinned host memory: page-aligned host blocks that is_pinned() recognises, cached for reuse, with statistics.
//
// Blocks are not locked into memory: no device reads them behind the kernel's back, and locked memory is rationed
// (ulimit -l). Sizes are powers of two, from one page up, unless allocator options say otherwise. Thread-safe;
// fork-safe; the allocator lives for the whole process. Raises OutOfMemoryError when the host cannot back a block.

#include <ATen/core/CachingHostAllocator.h>

namespace cann {

at::HostAllocator* pinned_allocator();
// Registers it as PrivateUse1's HostAllocator, so that torch.accelerator.empty_host_cache() works. Called once, at
// library load.
void install_pinned_allocator();
// True when `ptr` lies in a live pinned block; interior pointers count.
bool is_pinned_ptr(const void* ptr);

}  // namespace cann
