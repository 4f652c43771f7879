#pragma once
// Operators of a dry run whose results depend on values: numbers read by the host, sizes of selections, copies.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>

namespace cann::aten {

// Whether `op` may be one of them, whatever it is called with.
bool may_depend_on_values(const c10::OperatorHandle& op);

// If `op` is one of them, carries it out on `stack` and returns true. Known values are used; for others the handler of
// dry_run.h is asked, which may raise.
bool answer_from_values(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Whether what `op` writes is taken to keep its values; asks the handler so that the assumption is listed. True for the
// loss scaler's check of gradients, which is taken to find no infinity.
bool keeps_values_by_assumption(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

// copy_() between any two of {cpu, npu}. Values that are not known arrive on the host as NaN (floating point) or
// unchanged, and the handler is told.
at::Tensor& dry_copy(at::Tensor& self, const at::Tensor& source);

}  // namespace cann::aten
