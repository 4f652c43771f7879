// Operators on the storage of a tensor rather than its values. A Storage argument has no CPU form, so each of these
// must be written: one that is missing breaks torch.save or FSDP.

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include "aten/register.h"
#include "runtime/allocation_redirect.h"
#include "runtime/caching_allocator.h"
#include "runtime/dry_run.h"
#include "runtime/errors.h"
#include "runtime/host_alias.h"
#include "runtime/storage.h"

namespace cann::aten {
namespace {

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "set_: the storage must be on ", self.device(),
              " like the tensor, but is on ", source.device(), error_suffix(ErrModule::PTA, ErrCode::PARAM));
  c10::DimVector contiguous;
  if (stride.data() == nullptr && !size.empty()) {
    contiguous = c10::contiguous_strides(size);
    stride = contiguous;
  }
  auto* impl = self.unsafeGetTensorImpl();
  const at::Storage before = impl->unsafe_storage();
  at::native::checkSetStorage(self, source, offset, size, stride);  // gives `self` the storage
  try {
    const size_t needed = at::detail::computeStorageNbytes(size, stride, self.dtype().itemsize(), offset);
    if (needed > source.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(source, needed);
  } catch (...) {  // out of memory: `self` stays as it was, or it would reach past its storage
    impl->set_storage_keep_dtype(before);
    throw;
  }
  impl->set_sizes_and_strides(size, stride, offset);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {length}, {1});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  return set_source_storage_offset(self, at::Storage(make_npu_storage(0, self.device())), 0, {0}, {1});
}

// Without memory there is nothing for PyTorch's kernel to carry over.
const at::Tensor& resize_dry(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const size_t needed = at::detail::computeStorageNbytesContiguous(size, impl->dtype().itemsize(),
                                                                   static_cast<size_t>(impl->storage_offset()));
  if (needed > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), needed);
  }
  impl->set_sizes_contiguous(size);
  if (format.has_value() && *format != c10::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  if (dry_run()) return resize_dry(self, size, format);
  AliasScope scope;
  {
    const at::Tensor alias = scope.alias_written(self);
    AllocationRedirect redirect(scope.device());
    at::_ops::resize_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), alias, c10::fromIntArrayRefSlow(size),
                                  format);
  }
  scope.write_back();
  return self;
}

// Module.to() swaps the data of its Parameters when this says yes; with a no it would make new Parameter objects, which
// unties tied weights and leaves an optimizer with the old ones.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) {
    return t.layout() == c10::kStrided && !t.is_nested() && !t.is_quantized() && !t.is_meta();
  };
  if (dense(self) && dense(from)) return true;
  return self.key_set() == from.key_set() || (self.layout() == from.layout() && self.layout() != c10::kStrided &&
                                              self.device().type() == from.device().type());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  caching_allocator::record_stream(self.storage().data_ptr(), stream);
}

}  // namespace

void register_storage_operators(torch::Library& aten) {
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage_offset));
  aten.impl("set_.source_Storage", TORCH_FN(set_source_storage));
  aten.impl("set_.source_Tensor", TORCH_FN(set_source_tensor));
  aten.impl("set_", TORCH_FN(set_empty));
  aten.impl("resize_", TORCH_FN(resize_));
  aten.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  aten.impl("record_stream", TORCH_FN(record_stream));
  // A copy at once: PyTorch's copy-on-write storages own their memory, which an npu storage does not.
  aten.impl("_lazy_clone", [](const at::Tensor& self) { return self.clone(); });
}

void register_quantized_storage(torch::Library& quantized) {
  quantized.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage_offset));
}

}  // namespace cann::aten
