// Random operators whose CPU kernels have no generator argument and would draw from the CPU's default generator:
// dropout. Random bits are a hash of the card's generator state and the element's position, so they repeat under one
// seed whatever the number of threads; the mask is made, used and stored in one pass.

#include <cmath>

#include "aten/factories.h"
#include "aten/fused/dense_lists.h"
#include "aten/fused/native_kernel.h"
#include "aten/register.h"
#include "kernels/kernels.h"
#include "runtime/generator.h"

namespace cann::aten {
namespace {

using at::Tensor;

// A key that no other call on the card has, until its generator is seeded again or set back.
uint64_t next_key(c10::DeviceIndex device) {
  constexpr uint64_t kOffsetStep = 4;
  auto* generator = static_cast<NPUGeneratorImpl*>(default_generator(device).unsafeGetGeneratorImpl());
  const std::lock_guard lock(generator->mutex_);
  const uint64_t offset = generator->get_offset();
  generator->set_offset(offset + kOffsetStep);
  return generator->current_seed() + 0x9e3779b97f4a7c15ull * (offset / kOffsetStep + 1);
}

std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  DenseLists lists;
  lists.add(input, /*written=*/false);
  TORCH_INTERNAL_ASSERT(lists.regular());
  Tensor output = empty_like_dense(input), mask = at::empty_like(input, input.options().dtype(at::kBool));
  constexpr double kRange = 4294967296.0;  // 2^32
  const kernels::Dropout constants{.key = next_key(lists.device()),
                                   .keep = static_cast<uint32_t>(std::min((1 - p) * kRange, kRange - 1)),
                                   .scale = static_cast<float>(p < 1 ? 1 / (1 - p) : 0.0)};
  char* y = static_cast<char*>(output.mutable_data_ptr());
  bool* kept = mask.mutable_data_ptr<bool>();
  const auto kernel = kernels::kernels().dropout->forward[static_cast<int>(lists.element())];
  lists.for_each_range([&](size_t, int64_t begin, int64_t end) {
    kernel(y + begin * lists.item_size(), kept + begin, lists.at(0, 0, begin), constants, begin, end - begin);
  });
  return {std::move(output), std::move(mask)};
}

// Returns (output, mask): output = input * mask / (1 - p), mask bool of input's shape.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  DenseLists lists;
  lists.add(input, /*written=*/false);
  if (lists.regular()) return NativeKernel<at::_ops::native_dropout, &dropout>::call(input, p, train);
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(1 - p);
  const double scale = p < 1 ? 1.0 / (1.0 - p) : 0.0;
  return {input.mul(mask).mul_(scale), std::move(mask)};
}

Tensor native_dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale) {
  DenseLists lists;
  lists.add(grad_output, /*written=*/false);
  if (!lists.regular() || !mask.defined() || mask.scalar_type() != at::kBool || mask.device() != grad_output.device() ||
      mask.sizes() != grad_output.sizes() || mask.strides() != grad_output.strides()) {
    return general<at::_ops::native_dropout_backward>(grad_output, mask, scale);
  }
  Tensor result = empty_like_dense(grad_output);
  char* dx = static_cast<char*>(result.mutable_data_ptr());
  const bool* kept = mask.const_data_ptr<bool>();
  const auto kernel = kernels::kernels().dropout->backward[static_cast<int>(lists.element())];
  lists.for_each_range([&](size_t, int64_t begin, int64_t end) {
    kernel(dx + begin * lists.item_size(), lists.at(0, 0, begin), kept + begin, static_cast<float>(scale), end - begin);
  });
  return result;
}

}  // namespace

void register_random(torch::Library& aten) {
  aten.impl("native_dropout", TORCH_FN(native_dropout));
  register_native<at::_ops::native_dropout_backward, &native_dropout_backward>(aten);
}

}  // namespace cann::aten
