// Views: a new tensor over the same npu storage. PyTorch's own implementations only read sizes and strides, so they
// work unchanged.

#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "aten/register.h"

namespace cann::aten {

void register_views(torch::Library& aten) {
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("view.dtype", TORCH_FN(at::native::view_dtype));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten.impl("unfold", TORCH_FN(at::native::unfold));
}

}  // namespace cann::aten
