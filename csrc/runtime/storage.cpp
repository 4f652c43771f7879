#include "runtime/storage.h"

#include <ATen/native/Resize.h>
#include <c10/util/Exception.h>

#include <new>
#include <typeinfo>

#include "runtime/caching_allocator.h"
#include "runtime/dry_run.h"
#include "runtime/thread_cache.h"
#include "runtime/thread_local.h"

namespace cann {
namespace {

using c10::intrusive_ptr;
using c10::StorageImpl;

void free_storage_memory(void* memory) { ::operator delete(memory); }
CANN_FAST_THREAD_LOCAL ThreadCache<free_storage_memory, 256> t_free_storages;

intrusive_ptr<StorageImpl> share(const c10::Storage& storage) {
  return intrusive_ptr<StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl());
}

intrusive_ptr<StorageImpl> make_host_storage(size_t nbytes, c10::DataPtr data, c10::DeviceIndex device) {
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(nbytes)),
                                          std::move(data), caching_allocator::host_view_allocator(device),
                                          /*resizable=*/true);
}

// c10's factory for generic code that makes a storage of device npu (UntypedStorage(n, device="npu"),
// copy-on-write...).
intrusive_ptr<StorageImpl> create_storage(StorageImpl::use_byte_size_t, c10::SymInt size_bytes, c10::DataPtr data,
                                          c10::Allocator*, bool) {
  const c10::Device device(kNPU, checked_index(data.device().type() == kNPU ? data.device().index() : -1));
  const auto nbytes = static_cast<size_t>(size_bytes.guard_int(__FILE__, __LINE__));
  if (!data && nbytes != 0) return make_npu_storage(nbytes, device);
  data.unsafe_set_device(c10::Device(c10::kCPU));
  return wrap_host_storage(make_host_storage(nbytes, std::move(data), device.index()), device);
}

void release_storage(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::intrusive_ptr_target*>(storage));
}

}  // namespace

NPUStorageImpl::NPUStorageImpl(intrusive_ptr<StorageImpl> host, c10::Device device)
    : StorageImpl(use_byte_size_t(), c10::SymInt(static_cast<int64_t>(host->nbytes())),
                  c10::DataPtr(host->_mutable_data_ptr_no_checks().get(), device), caching_allocator::npu_allocator(),
                  /*resizable=*/true),
      host_(std::move(host)) {}

void NPUStorageImpl::release_resources() {
  StorageImpl::release_resources();
  host_.reset();
}

void NPUStorageImpl::sync() {
  void* data = host_->_mutable_data_ptr_no_checks().get();
  if (data != _mutable_data_ptr_no_checks().get()) set_data_ptr_noswap(c10::DataPtr(data, device()));
  if (host_->nbytes() != nbytes()) set_nbytes(host_->nbytes());
}

void NPUStorageImpl::resize_bytes(size_t nbytes) {
  if (nbytes == 0) {
    host_->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    host_->set_nbytes(size_t{0});
  } else if (dry_run()) {  // there are no bytes to keep
    host_->set_data_ptr_noswap(caching_allocator::host_view_allocator(device().index())->allocate(nbytes));
    host_->set_nbytes(nbytes);
    values_known_ = false;
  } else {
    at::native::resize_bytes_cpu(host_.get(), nbytes);
  }
  sync();
}

void* NPUStorageImpl::operator new(size_t size) {
  void* memory = t_free_storages.take();
  return memory != nullptr ? memory : ::operator new(size);
}

void NPUStorageImpl::operator delete(void* ptr) {
  if (!t_free_storages.give(ptr)) ::operator delete(ptr);
}

intrusive_ptr<StorageImpl> wrap_host_storage(intrusive_ptr<StorageImpl> host, c10::Device device) {
  return intrusive_ptr<StorageImpl>(c10::make_intrusive<NPUStorageImpl>(std::move(host), device));
}

intrusive_ptr<StorageImpl> host_storage_of(const c10::Storage& storage) {
  StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (C10_LIKELY(typeid(*impl) == typeid(NPUStorageImpl))) return static_cast<NPUStorageImpl*>(impl)->host();
  void* data = impl->_mutable_data_ptr_no_checks().get();
  const auto nbytes = static_cast<int64_t>(impl->nbytes());
  return c10::make_intrusive<StorageImpl>(
      StorageImpl::use_byte_size_t(), c10::SymInt(nbytes),
      c10::DataPtr(data, share(storage).release(), &release_storage, c10::Device(c10::kCPU)),
      /*allocator=*/nullptr, /*resizable=*/false);
}

intrusive_ptr<StorageImpl> make_npu_storage(size_t nbytes, c10::Device device) {
  auto data = caching_allocator::host_view_allocator(device.index())->allocate(nbytes);
  return wrap_host_storage(make_host_storage(nbytes, std::move(data), device.index()), device);
}

void install_storage() {
  c10::SetAllocator(kNPU, caching_allocator::npu_allocator(), /*priority=*/10);
  c10::SetStorageImplCreate(kNPU, &create_storage);
}

}  // namespace cann
