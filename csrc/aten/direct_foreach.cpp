// Operators on lists of tensors: aliased once, then run as the CPU does. Those of optimizers are in fused/foreach.cpp.

#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_foreach(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::_foreach_add__Tensor, ops::_foreach_addcmul__Tensor, ops::_foreach_addcdiv__Tensor,
                  ops::_foreach_lerp__List, ops::_foreach_rsqrt, ops::_foreach_rsqrt_, ops::_foreach_exp,
                  ops::_foreach_exp_, ops::_foreach_sign, ops::_foreach_sign_, ops::_foreach_max,
                  ops::_foreach_maximum__Scalar, ops::_foreach_clamp_min__Scalar, ops::_foreach_clamp_max__Scalar,
                  ops::_foreach_pow_ScalarAndTensor, ops::_foreach_pow_List, ops::_foreach_pow_Scalar,
                  ops::_foreach_pow__Scalar>(aten);
  register_direct<ops::_chunk_cat, ops::_chunk_cat_out, ops::split_with_sizes_copy_out>(aten);
}

}  // namespace cann::aten
