#pragma once
// The types that kernels of csrc/kernels know, from PyTorch's.

#include <c10/core/ScalarType.h>

#include <optional>

#include "kernels/element.h"

namespace cann::aten {

// Nothing for a type that csrc/kernels has no kernels for.
inline std::optional<kernels::Element> element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::Element::kFloat32;
    case at::kBFloat16:
      return kernels::Element::kBFloat16;
    case at::kHalf:
      return kernels::Element::kFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace cann::aten
