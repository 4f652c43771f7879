#pragma once
// What has to be done about tensors that a kernel writes: refuse a write that the host's memory could not back before
// the kernel kills the process (HBM is virtual until touched, so a tensor of 40 GiB may exist on a laptop until an
// operator fills it), and count versions.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include "runtime/host_guard.h"

namespace cann::aten {

// `alias` is the CPU alias of a tensor about to be written. Raises OutOfMemoryError. Free below 64 MiB.
inline void check_host_can_write(const at::Tensor& alias) {
  constexpr size_t kSmall = size_t{64} << 20;
  if (C10_LIKELY(!alias.defined() || !alias.has_storage() || alias.storage().nbytes() < kSmall)) return;
  const size_t bytes = at::detail::computeStorageNbytes(alias.sizes(), alias.strides(), alias.dtype().itemsize());
  cann::check_host_can_write(alias.const_data_ptr(), bytes);
}

// Tells autograd that the tensors of a list were written, which the dispatcher does for single tensors only.
inline void bump_versions(const auto& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace cann::aten
