#pragma once
// The storage pair, on which zero-copy operators rest.
//
// An npu tensor's storage is an NPUStorageImpl: device npu, *non-owning* data pointer, holding an ordinary CPU
// StorageImpl over the same bytes, which owns the HBM block. Two objects are needed because a tensor takes its device
// from its storage: views made inside a CPU kernel must see a CPU storage, `tensor.untyped_storage().device` must say
// npu. Whoever changes the CPU side (resize, data pointer) calls sync() on the npu side.

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "runtime/device.h"

namespace cann {

class NPUStorageImpl final : public c10::StorageImpl {
 public:
  NPUStorageImpl(c10::intrusive_ptr<c10::StorageImpl> host, c10::Device device);
  ~NPUStorageImpl() override = default;

  void release_resources() override;

  const c10::intrusive_ptr<c10::StorageImpl>& host() const { return host_; }
  // Takes data pointer and size anew from the CPU side.
  void sync();
  // Resizes the bytes in place, keeping min(old, new) of the content; 0 frees the block.
  void resize_bytes(size_t nbytes);

  // In a dry run: whether the bytes are what the program computed; see dry_run.h.
  bool values_known() const { return values_known_; }
  void set_values_known(bool known) { values_known_ = known; }

  // The private format (aclFormat) the tensor was cast to, kNoFormat for the base format of its sizes. Only metadata:
  // the bytes are always in the order of the strides, but the storage has the size that the format needs.
  static constexpr int32_t kNoFormat = -1;
  int32_t format() const { return format_; }
  void set_format(int32_t format) { format_ = format; }

  // Storages come and go with every tensor: freed ones are kept in a small per-thread list.
  static void* operator new(size_t size);
  static void operator delete(void* ptr);

 private:
  c10::intrusive_ptr<c10::StorageImpl> host_;
  bool values_known_ = false;
  int32_t format_ = kNoFormat;
};

// The npu storage over an existing CPU storage whose memory is HBM of `device`.
c10::intrusive_ptr<c10::StorageImpl> wrap_host_storage(c10::intrusive_ptr<c10::StorageImpl> host, c10::Device device);

// The CPU storage behind an npu storage. For a foreign one (made by from_blob) a CPU storage that keeps it alive.
c10::intrusive_ptr<c10::StorageImpl> host_storage_of(const c10::Storage& storage);

// A new, resizable npu storage of `nbytes` uninitialised bytes. Raises OutOfMemoryError.
c10::intrusive_ptr<c10::StorageImpl> make_npu_storage(size_t nbytes, c10::Device device);

// Registers the storage factory and allocators with c10. Called once at library load.
void install_storage();

}  // namespace cann
