#pragma once
// Parameters that operators of namespace "npu" have and ATen's do not; see aten/direct.h for what Arg does.

#include "aten/direct.h"

namespace cann::aten {

template <>
struct Arg<std::optional<at::TensorList>> {
  Arg(AliasScope& scope, const std::optional<at::TensorList>& tensors) {
    if (tensors.has_value()) aliases_.emplace(scope, *tensors);
  }
  std::optional<at::TensorList> get() { return aliases_.has_value() ? std::optional(aliases_->get()) : std::nullopt; }
  std::optional<BorrowedList> aliases_;
};

}  // namespace cann::aten
