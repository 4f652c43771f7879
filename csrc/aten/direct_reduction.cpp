// Reductions, scans, sorting and softmax.

#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_reduction(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::sum, ops::sum_dim_IntList, ops::sum_IntList_out, ops::mean, ops::mean_dim, ops::mean_out,
                  ops::prod, ops::prod_dim_int, ops::amax, ops::amin, ops::aminmax, ops::max, ops::min, ops::max_dim,
                  ops::min_dim, ops::argmax, ops::argmin, ops::any, ops::any_dim, ops::all, ops::all_dim>(aten);
  register_direct<ops::var_correction, ops::std_correction, ops::var_mean_correction, ops::std_mean_correction,
                  ops::norm_Scalar, ops::linalg_vector_norm, ops::linalg_vector_norm_out, ops::logsumexp, ops::nansum,
                  ops::count_nonzero_dim_IntList>(aten);
  register_direct<ops::cumsum, ops::cumprod, ops::topk, ops::sort, ops::sort_stable, ops::kthvalue, ops::median_dim,
                  ops::mode, ops::mode_values, ops::bincount, ops::unique_dim, ops::_unique2, ops::unique_consecutive,
                  ops::histc, ops::searchsorted_Tensor, ops::bucketize_Tensor>(aten);
  register_direct<ops::_softmax_out, ops::equal, ops::_local_scalar_dense>(aten);
}

}  // namespace cann::aten
