#pragma once
// Small tensors (parameters, moments, their gradients) that kernels read and write in float32 whatever their type is.

#include <memory>
#include <optional>

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/plain.h"
#include "kernels/kernels.h"

namespace cann::aten {

// The values of a plain tensor of a type that element_of() knows, as float32: its own memory, or a converted copy.
// nullptr for an absent tensor. The tensor must outlive it.
class FloatValues {
 public:
  explicit FloatValues(const std::optional<at::Tensor>& tensor) {
    if (!present(tensor)) return;
    if (tensor->scalar_type() == at::kFloat) {
      data_ = tensor->const_data_ptr<float>();
      return;
    }
    const int64_t n = tensor->numel();
    copy_ = std::make_unique_for_overwrite<float[]>(n);
    const kernels::ConversionKernels& convert = *kernels::kernels().conversion;
    if (tensor->scalar_type() == at::kBFloat16) {
      convert.from_bfloat16(static_cast<const kernels::BFloat16*>(tensor->const_data_ptr()), copy_.get(), n, 1.0f);
    } else {
      convert.from_half(static_cast<const kernels::Half*>(tensor->const_data_ptr()), copy_.get(), n, 1.0f);
    }
    data_ = copy_.get();
  }

  const float* data() const { return data_; }

 private:
  const float* data_ = nullptr;
  std::unique_ptr<float[]> copy_;
};

// The contiguous float32 npu tensor `values`, or a copy of it in a 16-bit `type`.
inline at::Tensor rounded_to(at::Tensor values, at::ScalarType type) {
  if (type == at::kFloat) return values;
  at::Tensor result = empty_contiguous(values.sizes(), type, values.device());
  const float* from = values.const_data_ptr<float>();
  const kernels::ConversionKernels& convert = *kernels::kernels().conversion;
  if (type == at::kBFloat16) {
    convert.to_bfloat16(from, static_cast<kernels::BFloat16*>(result.mutable_data_ptr()), values.numel(), 1.0f);
  } else {
    convert.to_half(from, static_cast<kernels::Half*>(result.mutable_data_ptr()), values.numel(), 1.0f);
  }
  return result;
}

}  // namespace cann::aten
