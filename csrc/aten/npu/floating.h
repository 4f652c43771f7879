#pragma once
// The check of operators whose arithmetic is that of fractions.

#include "aten/npu/support.h"

namespace cann::aten::npu {

// Raises RuntimeError unless `tensor`, called `name` in `op`, is float64, float32, float16 or bfloat16.
inline void check_floating(const Tensor& tensor, const char* name, const char* op) {
  CANN_CHECK_OP(tensor.is_floating_point(), op, ": ", name, " must be of a floating type, but is ",
                tensor.scalar_type());
}

}  // namespace cann::aten::npu
