// Operators on lists of tensors, as optimizers use them: aliased once, then run as the CPU does.

#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_foreach(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::_foreach_add__Scalar, ops::_foreach_add__List, ops::_foreach_add__ScalarList,
                  ops::_foreach_add__Tensor, ops::_foreach_add_Scalar, ops::_foreach_add_List,
                  ops::_foreach_sub__Scalar, ops::_foreach_sub__List, ops::_foreach_sub_List, ops::_foreach_sub_Scalar,
                  ops::_foreach_mul__Scalar, ops::_foreach_mul__List, ops::_foreach_mul__ScalarList,
                  ops::_foreach_mul__Tensor, ops::_foreach_mul_Scalar, ops::_foreach_mul_List,
                  ops::_foreach_mul_Tensor>(aten);
  register_direct<ops::_foreach_div__Scalar, ops::_foreach_div__List, ops::_foreach_div__ScalarList,
                  ops::_foreach_div__Tensor, ops::_foreach_div_Scalar, ops::_foreach_div_List,
                  ops::_foreach_div_ScalarList, ops::_foreach_addcmul__Scalar, ops::_foreach_addcmul__ScalarList,
                  ops::_foreach_addcmul__Tensor, ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList,
                  ops::_foreach_addcdiv__Tensor, ops::_foreach_lerp__Scalar, ops::_foreach_lerp__List>(aten);
  register_direct<ops::_foreach_sqrt, ops::_foreach_sqrt_, ops::_foreach_rsqrt, ops::_foreach_rsqrt_,
                  ops::_foreach_reciprocal, ops::_foreach_reciprocal_, ops::_foreach_neg, ops::_foreach_neg_,
                  ops::_foreach_abs, ops::_foreach_abs_, ops::_foreach_exp, ops::_foreach_exp_, ops::_foreach_sign,
                  ops::_foreach_sign_, ops::_foreach_zero_, ops::_foreach_norm_Scalar, ops::_foreach_max,
                  ops::_foreach_copy_, ops::_foreach_maximum__List, ops::_foreach_maximum_List,
                  ops::_foreach_maximum__Scalar, ops::_foreach_minimum__List, ops::_foreach_clamp_min__Scalar,
                  ops::_foreach_clamp_max__Scalar, ops::_foreach_pow_ScalarAndTensor, ops::_foreach_pow_List,
                  ops::_foreach_pow_Scalar, ops::_foreach_pow__Scalar>(aten);
  register_direct<ops::_chunk_cat, ops::_chunk_cat_out, ops::split_with_sizes_copy_out>(aten);
}

}  // namespace cann::aten
