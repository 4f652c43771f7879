// Metadata operators of sparse tensors: they make one from its members or return a member, and so must act on the npu
// tensor itself; through an alias they would call themselves for ever. PyTorch's implementations only touch the
// tensor's own fields and work unchanged. Arithmetic on sparse tensors takes the boxed path.

#include <ATen/NativeFunctions.h>

#include "aten/register.h"

namespace cann::aten {

void register_sparse(torch::Library& sparse) {
  namespace native = at::native;
  sparse.impl("empty.memory_format", TORCH_FN(native::empty_sparse_symint));
  sparse.impl("_sparse_coo_tensor_with_dims", TORCH_FN(native::new_with_dims_sparse));
  sparse.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(native::new_with_dims_and_tensor_sparse_symint));
  sparse.impl("_indices", TORCH_FN(native::_indices_sparse));
  sparse.impl("_values", TORCH_FN(native::_values_sparse));
  sparse.impl("indices", TORCH_FN(native::indices_sparse));
  sparse.impl("values", TORCH_FN(native::values_sparse));
  sparse.impl("_nnz", TORCH_FN(native::_nnz_sparse));
  sparse.impl("sparse_dim", TORCH_FN(native::sparse_dim_sparse));
  sparse.impl("dense_dim", TORCH_FN(native::dense_dim_sparse));
  sparse.impl("is_coalesced", TORCH_FN(native::is_coalesced_sparse));
  sparse.impl("_coalesced_", TORCH_FN(native::_coalesced_sparse_));
}

void register_sparse_compressed(torch::Library& compressed) {
  namespace native = at::native;
  compressed.impl("empty.memory_format", TORCH_FN(native::empty_sparse_compressed_symint));
  compressed.impl("crow_indices", TORCH_FN(native::crow_indices_sparse_csr));
  compressed.impl("col_indices", TORCH_FN(native::col_indices_sparse_csr));
  compressed.impl("ccol_indices", TORCH_FN(native::ccol_indices_sparse_csr));
  compressed.impl("row_indices", TORCH_FN(native::row_indices_sparse_csr));
  compressed.impl("values", TORCH_FN(native::values_sparse_csr));
  compressed.impl("_nnz", TORCH_FN(native::_nnz_sparse_csr));
  compressed.impl("sparse_dim", TORCH_FN(native::sparse_dim_sparse_csr));
  compressed.impl("dense_dim", TORCH_FN(native::dense_dim_sparse_csr));
}

}  // namespace cann::aten
