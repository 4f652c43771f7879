#pragma once
// What must hold before a kernel touches a tensor's memory: that its elements lie within its storage. A storage may be
// made smaller under tensors that view it, as FSDP does; a kernel that went on would read and write what the allocator
// has given to others.

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

namespace cann {

// Dense strided tensors with a storage and without symbolic sizes. True without elements. About 2 ns.
inline bool within_storage(const c10::TensorImpl& tensor) {
  const c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  const int64_t numel = tensor.numel();
  if (C10_UNLIKELY(numel == 0)) return true;
  int64_t last = tensor.storage_offset();
  if (C10_LIKELY(tensor.is_non_overlapping_and_dense())) {
    last += numel - 1;
  } else {
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    for (size_t dim = 0; dim < sizes.size(); ++dim) last += (sizes[dim] - 1) * strides[dim];
  }
  return storage.data() != nullptr &&
         (last + 1) * static_cast<int64_t>(tensor.itemsize()) <= static_cast<int64_t>(storage.nbytes());
}

// Whether raw memory is all there is to a tensor: dense and strided, no conjugate, negative or zero bit that an
// operator would have to carry out first, and every element within the storage. Any device.
inline bool is_raw_memory(const c10::TensorImpl& tensor) {
  constexpr c10::DispatchKeySet kLazyBits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                          c10::DispatchKey::ZeroTensor};
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::Dense) && !keys.has_any(kLazyBits) && !tensor.has_symbolic_sizes_strides() &&
         within_storage(tensor);
}

}  // namespace cann
