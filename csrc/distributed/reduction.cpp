#include "distributed/reduction.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace cann::hccl {
namespace {

// Elements per pass: the accumulator stays in the second-level cache while every part is read once.
constexpr int64_t kBlock = 32 * 1024;

at::Tensor view(const std::byte* data, int64_t count, c10::ScalarType dtype) {
  return at::from_blob(const_cast<std::byte*>(data), {count}, at::TensorOptions().dtype(dtype));
}

void combine(Reduction reduction, at::Tensor& total, const at::Tensor& part, double factor) {
  const bool boolean = total.scalar_type() == at::kBool;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      boolean ? total.logical_or_(part) : total.add_(part);
      return;
    case Reduction::kPremultipliedSum:
      total.add_(part, factor);
      return;
    case Reduction::kProduct:
      boolean ? total.logical_and_(part) : total.mul_(part);
      return;
    case Reduction::kMin:
      at::minimum_out(total, total, part.to(total.scalar_type()));
      return;
    case Reduction::kMax:
      at::maximum_out(total, total, part.to(total.scalar_type()));
      return;
    case Reduction::kNone:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "reduce_in_order() called without a reduction");
}

}  // namespace

void reduce_in_order(Reduction reduction, c10::ScalarType dtype, const std::vector<const std::byte*>& parts,
                     const std::vector<double>& factors, std::byte* out, size_t count) {
  c10::NoGradGuard no_grad;
  const bool half_width = dtype == at::kHalf || dtype == at::kBFloat16;
  const at::ScalarType wide = half_width ? at::kFloat : dtype;
  const size_t item = c10::elementSize(dtype);
  const auto total_elements = static_cast<int64_t>(count);
  at::Tensor scratch = at::empty({std::min(kBlock, total_elements)}, at::TensorOptions().dtype(wide));
  for (int64_t begin = 0; begin < total_elements; begin += kBlock) {
    const int64_t length = std::min(kBlock, total_elements - begin);
    const size_t offset = static_cast<size_t>(begin) * item;
    at::Tensor total = scratch.narrow(0, 0, length);
    total.copy_(view(parts[0] + offset, length, dtype));
    if (reduction == Reduction::kPremultipliedSum) total.mul_(factors[0]);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      combine(reduction, total, view(parts[rank] + offset, length, dtype), factors.empty() ? 1.0 : factors[rank]);
    }
    if (reduction == Reduction::kAverage) {
      const auto ranks = static_cast<int64_t>(parts.size());
      at::isIntegralType(dtype, false) ? total.div_(ranks, "trunc") : total.div_(ranks);
    }
    view(out + offset, length, dtype).copy_(total);
  }
}

const char* reduction_name(Reduction reduction) {
  constexpr const char* kNames[] = {"NONE", "SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM"};
  return kNames[static_cast<size_t>(reduction)];
}

}  // namespace cann::hccl
