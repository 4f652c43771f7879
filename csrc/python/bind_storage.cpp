// The CPU storage behind an npu storage, for sending tensors between processes (torch_cann/multiprocessing.py).

#include "runtime/storage.h"

#include "python/bindings.h"

namespace cann::python {

void bind_storage(py::module_& m) {
  m.def(
      "_npu_host_storage", [](const c10::Storage& storage) { return c10::Storage(host_storage_of(storage)); },
      py::arg("storage"));
  // Call after the CPU storage's memory was replaced (UntypedStorage.share_memory_()).
  m.def(
      "_npu_sync_storage",
      [](const c10::Storage& storage) {
        auto* impl = dynamic_cast<NPUStorageImpl*>(storage.unsafeGetStorageImpl());
        TORCH_CHECK_TYPE(impl != nullptr, "expected the storage of an npu tensor, but got one on ", storage.device());
        impl->sync();
      },
      py::arg("storage"));
  m.def(
      "_npu_wrap_host_storage",
      [](const c10::Storage& host, c10::DeviceIndex device) {
        TORCH_CHECK_TYPE(host.device_type() == c10::kCPU, "expected a CPU storage, but got one on ", host.device());
        lazy_init();
        auto impl = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(host.unsafeGetStorageImpl());
        return c10::Storage(wrap_host_storage(std::move(impl), c10::Device(kNPU, checked_index(device))));
      },
      py::arg("host"), py::arg("device"));
}

}  // namespace cann::python
