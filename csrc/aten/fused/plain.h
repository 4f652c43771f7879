#pragma once
// What kernels on single tensors ask of their arguments before they touch raw memory.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "aten/parallel.h"
#include "runtime/device.h"
#include "runtime/reach.h"

namespace cann::aten {

// Kernels whose results differ from ATen's in the last bits serve tensors from this size on: below it a faster loop
// gains little, and small examples keep the CPU's bits.
inline constexpr int64_t kOwnKernelElements = 4096;

// A defined, contiguous npu tensor of `device` without lazy bits, which lies within its storage.
inline bool is_plain(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) return false;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return is_raw_memory(*impl) && impl->device() == device && device.type() == kNPU && impl->is_contiguous();
}

inline bool is_plain_float(const at::Tensor& tensor, c10::Device device) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && is_plain(tensor, device);
}

// The same with `numel` elements, or absent.
inline bool is_plain_float_or_absent(const std::optional<at::Tensor>& tensor, c10::Device device, int64_t numel) {
  return !tensor.has_value() || !tensor->defined() || (is_plain_float(*tensor, device) && tensor->numel() == numel);
}

inline bool present(const std::optional<at::Tensor>& tensor) { return tensor.has_value() && tensor->defined(); }

// What a kernel that takes the place of several operators must ask: absent, or no tensor of a transform (vmap, forward
// derivatives, tracing) or subclass that wants to see each of them.
inline bool is_an_ordinary_tensor(const std::optional<at::Tensor>& tensor) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});
  return !present(tensor) || (!tensor->key_set().has_any(kWrappers) && !tensor->_fw_grad(/*level=*/0).defined());
}

// nullptr for an absent tensor.
inline const float* data_or_null(const std::optional<at::Tensor>& tensor) {
  return present(tensor) ? tensor->const_data_ptr<float>() : nullptr;
}

// Calls body(begin, end) for parts of [0, count), on several threads where each gets ATen's grain of elements or more.
void parallel(int64_t count, int64_t elements_each, const auto& body) {
  parallel_for(0, count, std::max<int64_t>(1, at::internal::GRAIN_SIZE / std::max<int64_t>(1, elements_each)), body);
}

}  // namespace cann::aten
