#pragma once
// Whether kernels of csrc/kernels can read and write the tensors that a kernel of this folder was given.

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>

#include "aten/element.h"
#include "runtime/reach.h"

namespace cann::aten::npu {

// The common element type of tensors on the host (the CPU aliases of npu tensors) whose elements are all within their
// storage; nothing for other types, for Meta tensors of a shape function, or where types differ.
inline std::optional<kernels::Element> raw_element(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType type = (*tensors.begin())->scalar_type();
  for (const at::Tensor* tensor : tensors) {
    if (!tensor->is_cpu() || tensor->scalar_type() != type || !is_raw_memory(*tensor->unsafeGetTensorImpl())) {
      return std::nullopt;
    }
  }
  return element_of(type);
}

}  // namespace cann::aten::npu
