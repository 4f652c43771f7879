#pragma once
// Loops on ATen's threads.

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace cann::aten {

// Calls body(first, last) for parts of [begin, end) of `grain` or more each, on as many threads as
// torch.set_num_threads() allows, and returns when all are done; on the calling thread inside another such loop. Raises
// what a body raises. In place of at::parallel_for, an inline function which makes threads only in sources that are
// compiled with OpenMP: one source here, instead of all of them and their precompiled header.
void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

// parallel_for() over `count` elements with ATen's grain, in parts that begin at multiples of 1024: stores past the
// caches want whole cache lines.
void parallel_elements(int64_t count, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace cann::aten
