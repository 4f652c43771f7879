#pragma once
// What kernels of several families share: checks with torch_npu's error suffix, the precision they compute in, results
// of a shape function.

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "runtime/errors.h"

// Raises RuntimeError with the suffix of an operator error (ERR01001 OPS invalid parameter) unless `condition` holds.
#define CANN_CHECK_OP(condition, ...) \
  TORCH_CHECK(condition, __VA_ARGS__, ::cann::error_suffix(::cann::ErrModule::OPS, ::cann::ErrCode::PARAM))
// The same for something the simulation does not offer: NotImplementedError.
#define CANN_CHECK_SUPPORTED(condition, ...)          \
  TORCH_CHECK_NOT_IMPLEMENTED(condition, __VA_ARGS__, \
                              ::cann::error_suffix(::cann::ErrModule::OPS, ::cann::ErrCode::NOT_SUPPORT))

namespace cann::aten::npu {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using at::TensorList;
using c10::SymInt;
using OptionalTensor = std::optional<at::Tensor>;

inline bool has(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }
inline Tensor value_or_undefined(const OptionalTensor& tensor) { return tensor.has_value() ? *tensor : Tensor(); }

// The type arithmetic runs in: float32 for 16-bit tensors, the tensor's own type otherwise. The hardware's vector unit
// computes 16-bit operators in float32 too.
inline at::ScalarType compute_type(at::ScalarType type) { return at::isReducedFloatingType(type) ? at::kFloat : type; }
inline at::ScalarType compute_type(const Tensor& tensor) { return compute_type(tensor.scalar_type()); }
inline Tensor wide(const Tensor& tensor) { return tensor.to(compute_type(tensor)); }

// Statistics (means, reciprocal deviations, maxima, sums) are float32 for all types but float64.
inline at::ScalarType statistics_type(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// `dim` from 0 to rank - 1. Raises IndexError as PyTorch does.
inline int64_t wrap_dim(const Tensor& tensor, int64_t dim) { return at::maybe_wrap_dim(dim, tensor.dim()); }

// An empty tensor with the device of `like`, for shape functions: sizes may be symbolic.
inline Tensor empty_of(const Tensor& like, c10::SymIntArrayRef sizes, at::ScalarType type) {
  return at::empty_symint(sizes, like.options().dtype(type));
}
inline Tensor empty_of(const Tensor& like, c10::SymIntArrayRef sizes) {
  return empty_of(like, sizes, like.scalar_type());
}
inline c10::SymDimVector sizes_of(const Tensor& tensor) {
  const auto sizes = tensor.sym_sizes();
  return c10::SymDimVector(sizes.begin(), sizes.end());
}

// Splits `tensor` in halves along `dim`; raises when the size is odd.
inline std::pair<Tensor, Tensor> halves(const Tensor& tensor, int64_t dim, const char* op) {
  CANN_CHECK_OP(tensor.dim() > 0, op, ": input must have at least one dimension, but is a scalar");
  dim = wrap_dim(tensor, dim);
  const SymInt size = tensor.sym_size(dim);
  CANN_CHECK_OP(size % 2 == 0, op, ": the size of dimension ", dim, " must be even, but input has sizes ",
                tensor.sym_sizes());
  const SymInt half = size / 2;
  return {tensor.narrow_symint(dim, 0, half), tensor.narrow_symint(dim, half, half)};
}

}  // namespace cann::aten::npu
