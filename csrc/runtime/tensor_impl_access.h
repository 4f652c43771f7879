#pragma once
// The one place that touches protected members of c10::TensorImpl: moving a tensor between the npu and the CPU device
// without copying it means changing its dispatch keys, device and storage in place, for which c10 has no public call.
// Members are used by name, so a torch release that renames them fails to compile here and nowhere else.

#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include "runtime/device.h"

namespace cann::detail {

// A derived class may form pointers to its base's protected members; nothing is ever an object of this class.
struct TensorImplAccess : c10::TensorImpl {
  static constexpr auto key_set_member() { return &TensorImplAccess::key_set_; }
  static constexpr auto device_member() { return &TensorImplAccess::device_opt_; }
  static constexpr auto storage_member() { return &TensorImplAccess::storage_; }
};

// XOR with this turns a CPU key set into the npu's and back: the backend bit and the autocast key differ, functionality
// (dense, sparse, autograd, conjugate, ...) stays.
inline const uint64_t kCpuNpuKeyBits =
    (c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) ^ c10::DispatchKeySet(c10::DispatchKey::CPU)).raw_repr() ^
    (c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1) ^ c10::DispatchKeySet(c10::DispatchKey::AutocastCPU))
        .raw_repr();

inline c10::DispatchKeySet other_keys(c10::DispatchKeySet keys) {
  return c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys.raw_repr() ^ kCpuNpuKeyBits);
}

// Turns a CPU tensor into an npu one or back; its storage must be replaced to match.
inline void retag(c10::TensorImpl* tensor, c10::Device device) {
  tensor->*TensorImplAccess::key_set_member() = other_keys(tensor->key_set());
  tensor->*TensorImplAccess::device_member() = device;
}

inline void replace_storage(c10::TensorImpl* tensor, c10::Storage storage) {
  tensor->*TensorImplAccess::storage_member() = std::move(storage);
}

// Takes the storage out of a tensor, which must get another one before it is used.
inline c10::intrusive_ptr<c10::StorageImpl> take_storage(c10::TensorImpl* tensor) {
  auto& storage = tensor->*TensorImplAccess::storage_member();
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl());
}

// A reusable CPU tensor that borrows the geometry of an npu tensor.
class HostAliasImpl final : public c10::TensorImpl {
 public:
  HostAliasImpl()
      : TensorImpl(c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(),
                   c10::Device(c10::kCPU)) {}

  // `source` is dense, strided, on the npu, without symbolic sizes.
  void assign(const c10::TensorImpl& source, c10::intrusive_ptr<c10::StorageImpl> host) {
    const auto& src = static_cast<const HostAliasImpl&>(source);  // same layout: only TensorImpl's members are read
    storage_ = c10::Storage(std::move(host));
    sizes_and_strides_ = src.sizes_and_strides_;
    storage_offset_ = src.storage_offset_;
    numel_ = src.numel_;
    data_type_ = src.data_type_;
    is_contiguous_ = src.is_contiguous_;
    is_channels_last_ = src.is_channels_last_;
    is_channels_last_contiguous_ = src.is_channels_last_contiguous_;
    is_channels_last_3d_ = src.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = src.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = src.is_non_overlapping_and_dense_;
    is_wrapped_number_ = src.is_wrapped_number_;
    key_set_ = other_keys(src.key_set_);
  }

  void clear() { storage_ = c10::Storage(); }
  // Forgets a storage that was assigned without counting a reference.
  void forget_storage() { (void)storage_.unsafeReleaseStorageImpl(); }

  bool same_geometry(const c10::TensorImpl& other) const {
    const auto& o = static_cast<const HostAliasImpl&>(other);
    return storage_offset_ == o.storage_offset_ && data_type_ == o.data_type_ &&
           sizes_and_strides_.size() == o.sizes_and_strides_.size() &&
           sizes_and_strides_.sizes_arrayref() == o.sizes_and_strides_.sizes_arrayref() &&
           sizes_and_strides_.strides_arrayref() == o.sizes_and_strides_.strides_arrayref();
  }
};

}  // namespace cann::detail
