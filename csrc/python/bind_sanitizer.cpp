// The stream sanitizer: races as Python objects.

#include <torch/csrc/profiler/combined_traceback.h>

#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "runtime/sanitizer.h"

// Declared here because its own header needs nlohmann/json, which the wheel does not ship.
namespace torch {
std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}

namespace cann::python {
namespace {

using torch::CapturedTraceback;

// What is told of races. Leaked: operators may run while the interpreter shuts down.
py::object& listener() {
  static auto* const object = new py::object();
  return *object;
}

sanitizer::Stack gather() { return CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false); }

py::dict to_python(const sanitizer::Access& access) {
  py::dict dict;
  dict["operator"] = access.op;
  dict["stream"] = access.stream.id();
  dict["device"] = static_cast<int>(access.stream.device_index());
  dict["write"] = access.write;
  dict["frames"] = py::list();
  if (auto* stack = dynamic_cast<CapturedTraceback*>(access.stack.get())) {
    std::vector<CapturedTraceback*> stacks = {stack};
    dict["frames"] = torch::py_symbolize(stacks)[0];
  }
  return dict;
}

std::string report(const sanitizer::Race& race) {
  const py::gil_scoped_acquire gil;
  try {
    const py::object answer =
        listener()(to_python(race.now), to_python(race.before), race.reused, race.begin, race.end - race.begin);
    return answer.is_none() ? std::string() : answer.cast<std::string>();
  } catch (py::error_already_set& error) {
    return error.what();
  }
}

}  // namespace

void bind_sanitizer(py::module_& m) {
  m.def(
      "_npu_sanitizerEnable",
      [](py::object on_race) {
        listener() = std::move(on_race);
        sanitizer::enable(&gather, &report);
      },
      py::arg("on_race"));
  m.def("_npu_sanitizerDisable", &sanitizer::disable);
  m.def("_npu_sanitizerIsOn", [] { return sanitizer::on(); });
  m.def(
      "_npu_sanitizerEraseStream",
      [](uintptr_t address, c10::Stream stream) {
        sanitizer::erase_stream(reinterpret_cast<const void*>(address), stream);
      },
      py::arg("address"), py::arg("stream"));
}

}  // namespace cann::python
