// Which kernel scaled_dot_product_attention takes on the npu: the CPU's choice, since its flash kernel runs on aliases.

#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include "runtime/dry_run.h"

namespace cann::aten {
namespace {

int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  // The flash kernel has no gradient for the mask.
  if (at::GradMode::is_enabled() && mask.has_value() && mask->requires_grad()) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  // The card's own fused kernel, which a dry run only has to cost.
  if (dry_run()) return static_cast<int64_t>(at::SDPBackend::overrideable);
  // It looks at shapes, dtypes and flags only: npu tensors need no alias, and a DTensor or a fake one of torch.compile
  // can have none.
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace cann::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &cann::aten::fused_sdp_choice)
}  // namespace at::native
