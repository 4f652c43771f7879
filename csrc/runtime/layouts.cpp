#include "runtime/layouts.h"

#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>

#include "runtime/host_alias.h"
#include "runtime/tensor_impl_access.h"

namespace cann::layouts {
namespace {

using c10::TensorImpl;

enum class Kind { kSparse, kCompressed, kNested, kQuantized };

Kind kind_of(const at::Tensor& tensor) {
  const auto keys = tensor.key_set();
  if (tensor.layout() == c10::kSparse) return Kind::kSparse;
  if (at::sparse_csr::is_sparse_compressed(tensor)) return Kind::kCompressed;
  if (tensor.is_nested()) return Kind::kNested;
  if (tensor.is_quantized()) return Kind::kQuantized;
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu does not support tensors of layout ", tensor.layout(), " with dispatch keys ",
                              keys, "; use strided, sparse, nested or quantized tensors");
}

// Moves a member tensor to the other side: npu to its CPU alias, or a CPU result to npu.
struct ToHost {
  at::Tensor operator()(const at::Tensor& t) const { return host_alias(t); }
  c10::Device device = c10::Device(c10::kCPU);
};
struct ToNpu {
  at::Tensor operator()(const at::Tensor& t) const { return npu_view_of_host(t, device); }
  c10::Device device;
};

at::SparseTensorImpl* sparse_impl(const at::Tensor& t) {
  return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}
at::SparseCsrTensorImpl* compressed_impl(const at::Tensor& t) {
  return static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl());
}

void assign_sparse(at::SparseTensorImpl* to, at::SparseTensorImpl* from, const auto& move) {
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
  to->set_indices_and_values_unsafe(move(from->indices()), move(from->values()));
  to->set_coalesced(from->coalesced());
}

template <class Move>
at::Tensor convert(const at::Tensor& tensor, const Move& move) {
  TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto keys = detail::other_keys(impl->key_set());
  const c10::DeviceGuard guard(move.device);  // a sparse tensor without members takes the current card
  switch (kind_of(tensor)) {
    case Kind::kSparse: {
      auto out = at::detail::make_tensor<at::SparseTensorImpl>(keys, impl->dtype());
      assign_sparse(sparse_impl(out), sparse_impl(tensor), move);
      return out;
    }
    case Kind::kCompressed: {
      auto* from = compressed_impl(tensor);
      auto out = at::detail::make_tensor<at::SparseCsrTensorImpl>(keys, move.device, tensor.layout(), impl->dtype());
      compressed_impl(out)->set_member_tensors(move(from->compressed_indices()), move(from->plain_indices()),
                                               move(from->values()), from->sizes());
      return out;
    }
    case Kind::kNested: {
      auto* from = at::native::get_nested_tensor_impl(tensor);
      return at::detail::make_tensor<at::native::NestedTensorImpl>(move(from->get_unsafe_storage_as_tensor()),
                                                                   from->get_nested_sizes(), from->get_nested_strides(),
                                                                   from->get_storage_offsets());
    }
    case Kind::kQuantized: {
      auto* from = static_cast<at::QTensorImpl*>(impl);
      at::Tensor bytes = at::detail::make_tensor<TensorImpl>(
          c10::Storage(impl->storage()),
          c10::DispatchKeySet(impl->device_type() == kNPU ? c10::DispatchKey::PrivateUse1 : c10::DispatchKey::CPU),
          impl->dtype());
      c10::Storage storage = move(bytes).storage();
      auto out = at::detail::make_tensor<at::QTensorImpl>(std::move(storage), keys, impl->dtype(), from->quantizer());
      out.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
      return out;
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace

at::Tensor alias_on_host(const at::Tensor& npu) {
  TORCH_CHECK_NOT_IMPLEMENTED(!npu.unsafeGetTensorImpl()->has_symbolic_sizes_strides(),
                              "npu kernels cannot run on tensors with symbolic sizes");
  return convert(npu, ToHost{});
}

at::Tensor wrap_host_result(const at::Tensor& host, c10::Device device) {
  return convert(host, ToNpu{.device = device});
}

void write_back(const at::Tensor& alias, const at::Tensor& npu) {
  const c10::Device device = npu.device();
  const ToNpu to_npu{.device = device};
  switch (kind_of(alias)) {
    case Kind::kSparse:
      assign_sparse(sparse_impl(npu), sparse_impl(alias), to_npu);
      return;
    case Kind::kCompressed: {
      auto* from = compressed_impl(alias);
      compressed_impl(npu)->set_member_tensors(to_npu(from->compressed_indices()), to_npu(from->plain_indices()),
                                               to_npu(from->values()), from->sizes());
      return;
    }
    case Kind::kNested:
      return;  // sizes are fixed and the buffer is shared
    case Kind::kQuantized:
      static_cast<at::QTensorImpl*>(npu.unsafeGetTensorImpl())
          ->set_quantizer_(static_cast<at::QTensorImpl*>(alias.unsafeGetTensorImpl())->quantizer());
      return;
  }
}

}  // namespace cann::layouts
