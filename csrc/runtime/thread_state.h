#pragma once
// What must be true of a thread before it runs an npu operator: the device is initialised and usable, and backward
// passes run on the thread that calls them.
//
// PyTorch runs the backward pass of non-CPU devices on a worker thread of the device. Kernels here are synchronous, so
// that hop would only cost time (a tiny MLP step: 0.87x of the CPU device with it, 1.0x without). The first npu
// operator of a thread switches it off for that thread, as torch.autograd.set_multithreading_enabled(False) does; a
// later call of that function by the user stays in force.

#include "runtime/thread_local.h"

namespace cann {

namespace detail {
extern CANN_FAST_THREAD_LOCAL bool t_thread_ready;
void prepare_thread();
}  // namespace detail

// Raises RuntimeError in a process forked after initialisation. One thread-local load after the first call.
inline void ensure_thread_ready() {
  if (!detail::t_thread_ready) [[unlikely]]
    detail::prepare_thread();
}

}  // namespace cann
