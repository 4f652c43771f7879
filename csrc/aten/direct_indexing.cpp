// Indexing, gathering, scattering and joining.

#include "aten/device_assert.h"
#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_indexing(torch::Library& aten) {
  namespace ops = at::_ops;
  register_asserting<ops::index_Tensor, ops::index_select, ops::index_select_out, ops::gather, ops::gather_out,
                     ops::scatter_src, ops::scatter_value, ops::scatter__src, ops::scatter__value, ops::scatter_add,
                     ops::scatter_add_, ops::scatter_reduce_two, ops::scatter_reduce__two>(aten);
  register_asserting<ops::index_put_, ops::_index_put_impl_, ops::index_add, ops::index_add_, ops::index_copy,
                     ops::index_copy_, ops::index_fill_int_Scalar, ops::index_fill__int_Scalar, ops::take, ops::put_,
                     ops::_embedding_bag, ops::_embedding_bag_forward_only>(aten);
  register_direct<ops::cat, ops::cat_out, ops::_stack, ops::masked_select, ops::masked_scatter, ops::masked_scatter_,
                  ops::nonzero, ops::embedding_renorm_, ops::tril, ops::tril_, ops::triu, ops::triu_, ops::tril_indices,
                  ops::triu_indices, ops::flip, ops::roll, ops::repeat_interleave_Tensor, ops::randperm_generator_out,
                  ops::multinomial>(aten);
}

}  // namespace cann::aten
