// Random operators whose CPU kernels have no generator argument and would draw from the CPU's default generator.

#include "aten/register.h"

namespace cann::aten {
namespace {

// Returns (output, mask): output = input * mask / (1 - p), mask bool of input's shape.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(1 - p);
  const double scale = p < 1 ? 1.0 / (1.0 - p) : 0.0;
  return {input.mul(mask).mul_(scale), std::move(mask)};
}

}  // namespace

void register_random(torch::Library& aten) { aten.impl("native_dropout", TORCH_FN(native_dropout)); }

}  // namespace cann::aten
