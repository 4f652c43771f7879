#pragma once
// Kernels over contiguous ranges applied to tensors of any strides.

#include <ATen/TensorIterator.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace cann::aten {

inline constexpr int kMaxRunOperands = 3;

// Calls run(data, n) until every element of the iterator's tensors was passed once: n elements from data[i] on, of the
// iterator's operand i, results first. Operands with gaps or broadcasting go through a buffer, so that a kernel gives
// an element the same bits whatever the strides. On ATen's threads; `run` may write data[0] where an input lies only in
// the places that it reads itself. All operands are on the host, at most kMaxRunOperands with one result, of one type
// of 2 or 4 bytes.
void for_each_contiguous_run(at::TensorIteratorBase& iterator,
                             c10::function_ref<void(char* const* data, int64_t n)> run);

}  // namespace cann::aten
