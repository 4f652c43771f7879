#pragma once
// The Python extension torch_cann._C: one bind_*() per subject, called once by module.cpp while the module is imported.
//
// Bindings hold no logic: they convert arguments, call cann:: or c10:: and convert the answer. Names follow
// torch_npu._C, since libraries call some of them directly. All run with the GIL held unless a binding releases it.

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <tuple>

namespace cann::python {

namespace py = pybind11;

void bind_device(py::module_& m);
void bind_memory(py::module_& m);
void bind_memory_history(py::module_& m);
void bind_stream(py::module_& m);
void bind_random(py::module_& m);
void bind_storage(py::module_& m);
void bind_simulator(py::module_& m);
void bind_sanitizer(py::module_& m);

// A stream as Python rebuilds it: (stream_id, device_index, device_type), the keywords of torch.Stream().
using StreamTuple = std::tuple<int64_t, int64_t, int64_t>;
inline StreamTuple to_tuple(const c10::Stream& stream) {
  return {stream.id(), stream.device_index(), static_cast<int64_t>(stream.device_type())};
}

}  // namespace cann::python

// Defined by bind_distributed.cpp: fills torch_cann._C._distributed_c10d.
void bind_distributed(pybind11::module_& m);
