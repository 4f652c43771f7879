// Streams by identity, and the time between events. For the rest of events torch.Event needs no binding: it reaches
// them through the device guard.

#include <torch/csrc/Event.h>

#include "runtime/stream.h"

#include "python/bindings.h"
#include "runtime/device.h"
#include "runtime/errors.h"

namespace cann::python {
namespace {

const c10::Event& unpack_event(py::handle event) {
  TORCH_CHECK_TYPE(THPEvent_Check(event.ptr()), "expected a torch.Event, but got ", Py_TYPE(event.ptr())->tp_name,
                   error_suffix(ErrModule::PTA, ErrCode::TYPE));
  return reinterpret_cast<THPEvent*>(event.ptr())->event;
}

}  // namespace

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
  // torch.Event.elapsed_time() takes no event of a subclass.
  m.def(
      "_npu_elapsedTime",
      [](py::handle start, py::handle end) { return unpack_event(start).elapsedTime(unpack_event(end)); },
      py::arg("start"), py::arg("end"));
  m.def("_npu_streamPriority", &stream_priority, py::arg("stream"));
}

}  // namespace cann::python
