// Streams by identity. Events need no binding: torch.Event reaches them through the device guard.

#include "runtime/stream.h"

#include "python/bindings.h"
#include "runtime/device.h"

namespace cann::python {

void bind_stream(py::module_& m) {
  m.def(
      "_npu_getCurrentStream", [](c10::DeviceIndex device) { return to_tuple(current_stream(checked_index(device))); },
      py::arg("device") = -1);
  m.def(
      "_npu_getDefaultStream", [](c10::DeviceIndex device) { return to_tuple(default_stream(checked_index(device))); },
      py::arg("device") = -1);
  m.def(
      "_npu_getCurrentRawStream", [](c10::DeviceIndex device) { return current_stream(checked_index(device)).id(); },
      py::arg("device") = -1);
  m.def(
      "_npu_getStreamFromPool",
      [](c10::DeviceIndex device, int priority) {
        lazy_init();
        return to_tuple(stream_from_pool(checked_index(device), priority));
      },
      py::arg("device") = -1, py::arg("priority") = 0);
  // Selects the stream's card too, as torch.cuda.set_stream() does.
  m.def(
      "_npu_setStream",
      [](c10::Stream stream) {
        set_device(stream.device_index());
        exchange_stream(stream);
      },
      py::arg("stream"));
  m.def("_npu_streamPriority", &stream_priority, py::arg("stream"));
}

}  // namespace cann::python
