#include "distributed/reduction.h"

#include <fmt/format.h>

#include "kernels/kernels.h"

namespace cann::hccl {
namespace {

using kernels::Combine;
using kernels::Reduced;

[[noreturn]] void refuse(Reduction reduction, DataType dtype) {
  throw std::invalid_argument(fmt::format("{} of {} cannot be computed", name_of(reduction), name_of(dtype)));
}

Reduced element_of(Reduction reduction, DataType dtype) {
  switch (dtype) {
    case DataType::kFloat:
      return Reduced::kFloat32;
    case DataType::kHalf:
      return Reduced::kFloat16;
    case DataType::kBFloat16:
      return Reduced::kBFloat16;
    case DataType::kInt8:
      return Reduced::kInt8;
    case DataType::kUInt8:
    case DataType::kBool:
      return Reduced::kUInt8;
    case DataType::kInt16:
      return Reduced::kInt16;
    case DataType::kInt32:
      return Reduced::kInt32;
    case DataType::kInt64:
      return Reduced::kInt64;
    case DataType::kUInt64:
      return Reduced::kUInt64;
    case DataType::kDouble:
      return Reduced::kFloat64;
  }
  refuse(reduction, dtype);
}

Combine combine_of(Reduction reduction, DataType dtype) {
  const bool boolean = dtype == DataType::kBool;
  switch (reduction) {
    case Reduction::kSum:
      return boolean ? Combine::kMax : Combine::kSum;
    case Reduction::kProduct:
      return boolean ? Combine::kMin : Combine::kProduct;
    case Reduction::kMin:
      return Combine::kMin;
    case Reduction::kMax:
      return Combine::kMax;
    case Reduction::kAverage:
      return Combine::kAverage;
    case Reduction::kPremultipliedSum:
      return Combine::kScaledSum;
    case Reduction::kNone:
      break;
  }
  refuse(reduction, dtype);
}

}  // namespace

void reduce_in_order(Reduction reduction, DataType dtype, const std::vector<const std::byte*>& parts,
                     const std::vector<double>& factors, const std::vector<std::byte*>& outs, size_t count, bool stream,
                     int divisor) {
  const auto kernel = kernels::kernels().reduction->get(combine_of(reduction, dtype), element_of(reduction, dtype));
  if (kernel == nullptr) refuse(reduction, dtype);
  const std::vector<const void*> in(parts.begin(), parts.end());
  const std::vector<void*> out(outs.begin(), outs.end());
  const int parts_count = static_cast<int>(in.size());
  kernel({in.data(), factors.data(), parts_count, divisor > 0 ? divisor : parts_count}, out.data(),
         static_cast<int>(out.size()), static_cast<int64_t>(count), stream);
}

}  // namespace cann::hccl
