// Overflow status of the older chips, and the check for values that are not finite. Arithmetic here follows IEEE 754
// (the hardware's INF_NAN mode), which has no status registers: they read as zero.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

constexpr int64_t kStatusRegisters = 8;

Tensor no_status(const Tensor& input) { return at::zeros({kStatusRegisters}, input.options().dtype(at::kFloat)); }

Tensor alloc_float_status(const Tensor& input) { return no_status(input); }
Tensor get_float_status(const Tensor& input, int64_t) { return no_status(input); }

bool foreach_non_finite(TensorList grads) {
  for (const Tensor& grad : grads) {
    if (!grad.isfinite().all().item<bool>()) return true;
  }
  return false;
}

}  // namespace

void register_status(Registry& ops) {
  ops.add<"npu_alloc_float_status", alloc_float_status>("(Tensor input) -> Tensor");
  ops.add<"npu_get_float_status", get_float_status>("(Tensor input, int mode=0) -> Tensor");
  ops.add<"npu_clear_float_status", get_float_status>("(Tensor input, int mode=0) -> Tensor");
  ops.add<"_amp_foreach_non_finite_check", foreach_non_finite>("(Tensor[] scaled_grads) -> bool");
}

}  // namespace cann::aten::npu
