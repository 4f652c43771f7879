// Copies within a card, between cards and between host and card. All are host memory, so all are the CPU's copy kernel.

#include "aten/dry_values.h"
#include "aten/fast_pointwise.h"
#include "aten/observe.h"
#include "aten/register.h"
#include "aten/write_guard.h"
#include "runtime/dry_run.h"
#include "runtime/host_alias.h"

namespace cann::aten {
namespace {

// `self` and `source` may be on any two devices of {cpu, npu}, so there is no check_devices().
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (dry_run()) return dry_copy(self, source);
  if (!simulator::watching() && fast::copy(self, source)) return self;
  AliasScope scope;
  at::Tensor to = scope.alias(self);
  const at::Tensor from = scope.alias(source);
  check_host_can_write(to);
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), to, from, non_blocking);
  if (simulator::watching()) observe_copy(self, source, non_blocking);
  return self;
}

// Takes the quantizer of a quantized source along, which write_back() hands to `self`.
at::Tensor& copy_quantized(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  AliasScope scope;
  at::Tensor to = scope.alias_written(self);
  const at::Tensor from = scope.alias(source);
  check_host_can_write(to);
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::QuantizedCPU), to, from, non_blocking);
  scope.write_back();
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor to = destination;
  copy_(to, self, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, /*non_blocking=*/false);
}

}  // namespace

void register_copy(torch::Library& aten) {
  aten.impl("copy_", TORCH_FN(copy_));
  aten.impl("_copy_from", TORCH_FN(copy_from));
  aten.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

void register_quantized_copy(torch::Library& quantized) { quantized.impl("copy_", TORCH_FN(copy_quantized)); }

}  // namespace cann::aten
