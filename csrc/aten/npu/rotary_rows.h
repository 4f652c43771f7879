#pragma once
// Rotary embedding by one pass over rows, where the operands allow it; what they do not allow is composed of operators
// (rotary.cpp).

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace cann::aten::npu {

enum class Rotation { kHalf, kInterleave };

// x cos + R(x) sin (kernels/rotary.h), a tensor laid out as x. Undefined unless all are host tensors of one type,
// float32 or 16-bit, of the same rank with contiguous last dimensions of equal size, and cos and sin, alike in sizes
// and strides, broadcast to x.
at::Tensor rotary_by_rows(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, Rotation rotation);

// The gradients of x, cos and sin, under the same conditions. Sums are in an order that does not depend on the number
// of threads.
std::optional<std::tuple<at::Tensor, at::Tensor, at::Tensor>> rotary_backward_by_rows(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, Rotation rotation);

}  // namespace cann::aten::npu
