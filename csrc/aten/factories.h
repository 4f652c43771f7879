#pragma once
// Uninitialised npu tensors for kernels that make their own results.

#include <ATen/core/Tensor.h>

namespace cann::aten {

// A contiguous tensor on `device` (npu, with an index). Raises OutOfMemoryError.
at::Tensor empty_contiguous(c10::IntArrayRef size, at::ScalarType dtype, c10::Device device);

// A tensor with the sizes, strides, type and card of `model`, an npu tensor without gaps or overlap. Raises
// OutOfMemoryError.
at::Tensor empty_like_dense(const at::Tensor& model);

}  // namespace cann::aten
