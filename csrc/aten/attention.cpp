// Which kernel scaled_dot_product_attention takes on the npu: the CPU's choice, since its flash kernel runs on aliases.

#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include "runtime/dry_run.h"
#include "runtime/host_alias.h"

namespace cann::aten {
namespace {

int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  // The flash kernel has no gradient for the mask, and the CPU's choice below cannot see that one is asked of an alias.
  if (at::GradMode::is_enabled() && mask.has_value() && mask->requires_grad()) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  // The card's own fused kernel, which a dry run only has to cost.
  if (dry_run()) return static_cast<int64_t>(at::SDPBackend::overrideable);
  // A DTensor has sizes but no memory that could be aliased; sizes are all that the choice needs.
  if (query.key_set().has(c10::DispatchKey::Python)) {
    return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
  }
  AliasScope scope;
  const at::Tensor q = scope.alias(query), k = scope.alias(key), v = scope.alias(value);
  const auto m = mask.has_value() ? std::optional(scope.alias(*mask)) : std::nullopt;
  return at::native::_fused_sdp_choice_cpp(q, k, v, m, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace cann::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &cann::aten::fused_sdp_choice)
}  // namespace at::native
