// Norms of lists of gradients and GradScaler's unscaling, in one pass over the whole list.

#include <atomic>
#include <cmath>
#include <vector>

#include "aten/factories.h"
#include "aten/fused/dense_lists.h"
#include "aten/fused/native_kernel.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

void store_number(const at::Tensor& number, double value) {
  switch (number.scalar_type()) {
    case at::kFloat:
      *number.mutable_data_ptr<float>() = static_cast<float>(value);
      break;
    case at::kBFloat16:
      *number.mutable_data_ptr<at::BFloat16>() = static_cast<float>(value);
      break;
    default:
      *number.mutable_data_ptr<at::Half>() = static_cast<float>(value);
  }
}

// The 2-norm of each tensor. Its rounding error is smaller than that of the CPU's kernel, which sums in one float32 per
// lane; the order of summation differs, so the last bits do as well.
std::vector<at::Tensor> foreach_norm(at::TensorList self, const at::Scalar& ord, std::optional<at::ScalarType> dtype) {
  DenseLists lists;
  if (!dtype.has_value() && !ord.isComplex() && ord.toDouble() == 2.0) lists.add(self, /*written=*/false);
  if (lists.size() == 0 || !lists.regular()) return general<at::_ops::_foreach_norm_Scalar>(self, ord, dtype);

  const auto& starts = lists.block_starts();
  c10::SmallVector<double, 64> sums(starts.back());  // per block, so that the sum does not depend on the threads
  const auto kernel = kernels::kernels().gradients->sum_of_squares[static_cast<int>(lists.element())];
  lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += DenseLists::kBlock) {
      sums[starts[i] + at / DenseLists::kBlock] = kernel(lists.at(0, i, at), std::min(DenseLists::kBlock, end - at));
    }
  });
  std::vector<at::Tensor> norms;
  norms.reserve(self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    double sum = 0;
    for (int64_t block = starts[i]; block < starts[i + 1]; ++block) sum += sums[block];
    norms.push_back(empty_contiguous({}, self[i].scalar_type(), self[i].device()));
    store_number(norms.back(), std::sqrt(sum));
  }
  return norms;
}

bool is_float_number(const at::Tensor& number, c10::DeviceIndex device) {
  return number.defined() && number.scalar_type() == at::kFloat && number.numel() == 1 &&
         number.device() == c10::Device(kNPU, device) && !number.is_neg();
}

void unscale(at::TensorList self, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  DenseLists lists;
  if (!self.empty()) lists.add(self, /*written=*/true);
  if (lists.size() == 0 || !lists.regular() || !is_float_number(found_inf, lists.device()) ||
      !is_float_number(inv_scale, lists.device())) {
    return general<at::_ops::_amp_foreach_non_finite_check_and_unscale_>(self, found_inf, inv_scale);
  }
  const float scale = *inv_scale.const_data_ptr<float>();
  const auto kernel = kernels::kernels().gradients->unscale[static_cast<int>(lists.element())];
  std::atomic<bool> found = false;
  lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
    if (kernel(lists.at(0, i, begin), scale, end - begin)) found.store(true, std::memory_order_relaxed);
  });
  if (found) *found_inf.mutable_data_ptr<float>() = 1.0f;
  bump_versions(self);
}

}  // namespace

void register_fused_gradients(torch::Library& aten) {
  register_native<at::_ops::_foreach_norm_Scalar, &foreach_norm>(aten);
  register_native<at::_ops::_amp_foreach_non_finite_check_and_unscale_, &unscale>(aten);
}

}  // namespace cann::aten
