// Autocast on the npu: PyTorch's own lists of what runs in the lower precision, what in float32 and what promotes.

#include <ATen/autocast_mode.h>

#include "aten/register.h"

namespace cann::aten {
namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(
      false,
      "binary_cross_entropy and BCELoss are unsafe to autocast: the backward of the sigmoid before them can leave "
      "the range of float16. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which take the logits.");
}

}  // namespace

void register_autocast(torch::Library& m) {
  using namespace at;            // NOLINT(google-build-using-namespace): PyTorch's macros below name
  using namespace at::autocast;  // NOLINT(google-build-using-namespace): members of both
#define CANN_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define CANN_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define CANN_FLOAT32_OPTIONAL_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define CANN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(CANN_LOWER_PRECISION)
  AT_FORALL_FP32(CANN_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(CANN_FLOAT32_OPTIONAL_DTYPE)
  AT_FORALL_PROMOTE(CANN_PROMOTE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#undef CANN_LOWER_PRECISION
#undef CANN_FLOAT32
#undef CANN_FLOAT32_OPTIONAL_DTYPE
#undef CANN_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace cann::aten
