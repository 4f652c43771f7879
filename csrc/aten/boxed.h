#pragma once
// The boxed path as a function, for kernels that take it for some calls only.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace cann::aten {

// Runs the operator's CPU kernel on the npu tensors on `stack` and leaves npu results there. Not reported to the
// simulator. Raises what the kernel raises.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace cann::aten
