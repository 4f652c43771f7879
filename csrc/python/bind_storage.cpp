// The CPU storage behind an npu storage, for sending tensors between processes (torch_cann/multiprocessing.py).

#include <ATen/core/Tensor.h>

#include "python/bindings.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/storage.h"

namespace cann::python {
namespace {

// Shared memory comes without an allocator, and resizing such a storage would crash: let it grow into the card's
// memory.
void grow_from(c10::StorageImpl& host, c10::DeviceIndex device) {
  host.set_allocator(caching_allocator::host_view_allocator(device));
}

// Takes over the memory that UntypedStorage.share_memory_() put behind the CPU storage.
void sync_storage(const c10::Storage& storage) {
  auto* impl = dynamic_cast<NPUStorageImpl*>(storage.unsafeGetStorageImpl());
  TORCH_CHECK_TYPE(impl != nullptr, "expected the storage of an npu tensor, but got one on ", storage.device(),
                   error_suffix(ErrModule::PTA, ErrCode::TYPE));
  grow_from(*impl->host(), impl->device().index());
  impl->sync();
}

c10::Storage wrap_storage(const c10::Storage& host, c10::DeviceIndex device) {
  TORCH_CHECK_TYPE(host.device_type() == c10::kCPU, "expected a CPU storage, but got one on ", host.device(),
                   error_suffix(ErrModule::PTA, ErrCode::TYPE));
  lazy_init();
  device = checked_index(device);
  auto impl = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(host.unsafeGetStorageImpl());
  grow_from(*impl, device);
  return c10::Storage(wrap_host_storage(std::move(impl), c10::Device(kNPU, device)));
}

// How many owners a storage has; `cdata` is UntypedStorage._cdata.
size_t storage_use_count(size_t cdata) {
  return c10::raw::intrusive_ptr::use_count(reinterpret_cast<c10::StorageImpl*>(cdata));
}

// torch_npu's gives a tensor that does not keep its memory alive. This one does, so it never dangles.
at::Tensor weak_ref_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(tensor.device().type() == kNPU, "expected a tensor on npu, but got one on ", tensor.device(),
                   error_suffix(ErrModule::PTA, ErrCode::TYPE));
  return tensor.detach();
}

// The type of what graph_task_group_end() would give; there are no such groups.
struct NPUTaskGroupHandle {};

}  // namespace

void bind_storage(py::module_& m) {
  m.def(
      "_npu_host_storage", [](const c10::Storage& storage) { return c10::Storage(host_storage_of(storage)); },
      py::arg("storage"));
  m.def("_storage_Use_Count", &storage_use_count, py::arg("cdata"));
  m.def("_weak_ref_tensor", &weak_ref_tensor, py::arg("tensor"));
  py::class_<NPUTaskGroupHandle>(m, "_NPUTaskGroupHandle");
  m.def("_npu_sync_storage", &sync_storage, py::arg("storage"));
  m.def("_npu_wrap_host_storage", &wrap_storage, py::arg("host"), py::arg("device"));
}

}  // namespace cann::python
