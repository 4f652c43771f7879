// Metadata operators of sparse and nested tensors: they make one from its members, copy member by member or return a
// member, and so must act on the npu tensor itself; through an alias they would call themselves for ever. PyTorch's
// implementations only touch the tensor's own fields and work unchanged, once the card is made current: a sparse tensor
// without members takes its device from there. Arithmetic on these layouts takes the boxed path.

#include <ATen/NativeFunctions.h>
#include <c10/core/DeviceGuard.h>

#include "aten/register.h"
#include "runtime/allocation_redirect.h"
#include "runtime/host_alias.h"

namespace cann::aten {
namespace {

// The card an argument names, if it names one.
template <class T>
std::optional<c10::Device> card_named_by(const T&) {
  return std::nullopt;
}
std::optional<c10::Device> card_named_by(const std::optional<c10::Device>& device) { return device; }
std::optional<c10::Device> card_named_by(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor.device()) : std::nullopt;
}

// `kFunction` with the card of its tensors or of its device argument current. The last one named wins: at::empty_like
// and the constructors pass the device last.
template <auto kFunction, class Signature>
struct Guarded;

template <auto kFunction, class R, class... A>
struct Guarded<kFunction, R (*)(A...)> {
  static R call(A... args) {
    std::optional<c10::Device> device;
    const auto take = [&](std::optional<c10::Device> named) {
      if (named.has_value() && named->type() == kNPU) device = named;
    };
    (take(card_named_by(args)), ...);
    const c10::OptionalDeviceGuard guard(device);
    return kFunction(static_cast<A&&>(args)...);
  }
};

template <auto kFunction>
constexpr auto guarded() {
  return TORCH_FN((Guarded<kFunction, decltype(kFunction)>::call));
}

// The CPU kernel asks its arguments whether they require grad, to know if amax and amin must return the winners'
// positions; aliases do not carry that flag.
std::tuple<at::Tensor, at::Tensor> sparse_mm_reduce(const at::Tensor& self, const at::Tensor& other,
                                                    std::string_view reduce) {
  AliasScope scope;
  at::Tensor matrix = scope.alias(self);
  const at::Tensor dense = scope.alias(other);
  scope.check_devices("aten::_sparse_mm_reduce_impl");
  matrix.set_requires_grad(self.requires_grad() || other.requires_grad());
  AllocationRedirect redirect(scope.device());
  auto [out, positions] = at::_ops::_sparse_mm_reduce_impl::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), matrix, dense, reduce);
  return {scope.wrap(std::move(out)), scope.wrap(std::move(positions))};
}

}  // namespace

void register_sparse(torch::Library& sparse) {
  namespace native = at::native;
  sparse.impl("empty.memory_format", guarded<&native::empty_sparse_symint>());
  sparse.impl("_sparse_coo_tensor_with_dims", guarded<&native::new_with_dims_sparse>());
  sparse.impl("_sparse_coo_tensor_with_dims_and_tensors", guarded<&native::new_with_dims_and_tensor_sparse_symint>());
  sparse.impl("copy_", TORCH_FN(native::copy_sparse_wrapper_));
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
  compressed.impl("empty.memory_format", guarded<&native::empty_sparse_compressed_symint>());
  compressed.impl("copy_", TORCH_FN(native::copy_sparse_compressed_));
  compressed.impl("crow_indices", TORCH_FN(native::crow_indices_sparse_csr));
  compressed.impl("col_indices", TORCH_FN(native::col_indices_sparse_csr));
  compressed.impl("ccol_indices", TORCH_FN(native::ccol_indices_sparse_csr));
  compressed.impl("row_indices", TORCH_FN(native::row_indices_sparse_csr));
  compressed.impl("values", TORCH_FN(native::values_sparse_csr));
  compressed.impl("_nnz", TORCH_FN(native::_nnz_sparse_csr));
  compressed.impl("sparse_dim", TORCH_FN(native::sparse_dim_sparse_csr));
  compressed.impl("dense_dim", TORCH_FN(native::dense_dim_sparse_csr));
  compressed.impl("_sparse_mm_reduce_impl", TORCH_FN(sparse_mm_reduce));
}

void register_nested(torch::Library& nested) {
  nested.impl("_to_copy", TORCH_FN(at::native::_to_copy_nested));
  nested.impl("copy_", TORCH_FN(at::native::copy_nested_));
}

}  // namespace cann::aten
