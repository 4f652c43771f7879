#pragma once
// Values of small device tensors that a kernel needs as numbers: lengths, group boundaries.

#include <vector>

#include "aten/npu/support.h"

namespace cann::aten::npu {

// The integers of a tensor of any integer type, in order.
inline std::vector<int64_t> integers_of(const Tensor& tensor) {
  const Tensor host = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* data = host.const_data_ptr<int64_t>();
  return std::vector<int64_t>(data, data + host.numel());
}

}  // namespace cann::aten::npu
