// Cards: how many, which is current, what they are.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <string>

#include "aten/kernel_choice.h"
#include "python/bindings.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "sim/env.h"
#include "sim/server.h"

namespace cann::python {
namespace {

struct DeviceProperties {
  const sim::Soc& soc;
  size_t total_memory;
  int physical_id;
};

struct DeviceMemories {
  size_t total_memory;
  size_t free_memory;
};

constexpr size_t kMiB = size_t{1} << 20;

DeviceProperties properties_of(c10::DeviceIndex index) {
  lazy_init();
  index = checked_index(index);
  auto& server = sim::Server::get();
  return {server.soc(), caching_allocator::memory_info(index).second, server.physical_id(index)};
}

DeviceMemories memories_of(c10::DeviceIndex index) {
  lazy_init();
  const auto [free, total] = caching_allocator::memory_info(checked_index(index));
  return {total, free};
}

std::string repr(const DeviceProperties& p) {
  return fmt::format(
      "_NPUDeviceProperties(name='{}', total_memory={}MB, cube_core_num={}, vector_core_num={}, L2_cache_size={}MB)",
      p.soc.name, p.total_memory / kMiB, p.soc.cube_cores, p.soc.vector_cores, p.soc.l2_bytes / kMiB);
}

void bind_properties(py::module_& m) {
  py::class_<DeviceProperties> properties(m, "_NPUDeviceProperties");
  properties.def_property_readonly("name", [](const DeviceProperties& p) { return std::string(p.soc.name); })
      .def_readonly("total_memory", &DeviceProperties::total_memory)
      .def_property_readonly("cube_core_num", [](const DeviceProperties& p) { return p.soc.cube_cores; })
      .def_property_readonly("vector_core_num", [](const DeviceProperties& p) { return p.soc.vector_cores; })
      .def_property_readonly("multi_processor_count", [](const DeviceProperties& p) { return p.soc.cube_cores; })
      .def_property_readonly("L2_cache_size", [](const DeviceProperties& p) { return p.soc.l2_bytes; })
      .def_property_readonly("soc_version", [](const DeviceProperties& p) { return p.soc.version; })
      .def_property_readonly("is_multi_gpu_board", [](const DeviceProperties&) { return false; })
      .def_property_readonly("is_integrated", [](const DeviceProperties&) { return false; })
      .def_property_readonly(
          "uuid",
          [](const DeviceProperties& p) { return fmt::format("00000000-0000-0000-0000-{:012x}", p.physical_id); })
      .def("__repr__", &repr);
  // Fields of other vendors' devices that generic code reads; the chip has no such notion.
  for (const char* name :
       {"major", "minor", "max_threads_per_multi_processor", "warp_size", "regs_per_multiprocessor", "gcnArchName"}) {
    properties.def_property_readonly(name, [](const DeviceProperties&) { return py::none(); });
  }
  py::class_<DeviceMemories>(m, "_NPUDeviceMemories")
      .def_readonly("total_memory", &DeviceMemories::total_memory)
      .def_readonly("free_memory", &DeviceMemories::free_memory);
}

}  // namespace

void bind_device(py::module_& m) {
  bind_properties(m);
  m.def("_npu_init", &lazy_init);
  m.def("_npu_isInitialized", &is_initialized);
  m.def("_npu_isInBadFork", &is_in_bad_fork);
  m.def("_npu_getDeviceCount", &device_count);
  m.def("_npu_getDevice", &current_device);
  m.def("_npu_setDevice", &set_device, py::arg("device"));
  m.def(
      "_npu_exchangeDevice",
      [](c10::DeviceIndex index) {
        const auto previous = current_device();
        set_device(index);
        return previous;
      },
      py::arg("device"));
  m.def("_npu_checkedIndex", &checked_index, py::arg("device"));
  m.def("_npu_getDeviceProperties", &properties_of, py::arg("device"));
  m.def("_npu_getDeviceMemories", &memories_of, py::arg("device"));
  m.def("_npu_getDeviceName", [](c10::DeviceIndex index) { return std::string(properties_of(index).soc.name); });
  m.def("_npu_getSocName", [] { return std::string(sim::find_soc(sim::Env::get().soc).name); });
  m.def("_npu_get_soc_version", [] { return sim::find_soc(sim::Env::get().soc).version; });
  m.def(
      "_npu_synchronize",
      [](c10::DeviceIndex index) { c10::impl::VirtualGuardImpl(kNPU).synchronizeDevice(checked_index(index)); },
      py::arg("device") = -1, py::call_guard<py::gil_scoped_release>());
  m.def("_kernel_set", &aten::kernel_set_name);
  m.def("_kernel_choice", [] {
    constexpr const char* kNames[] = {"", "own", "aten", "float32", "native"};
    return kNames[static_cast<int>(aten::take_kernel_choice())];
  });
  m.def(
      "_error_suffix",
      [](int module, int code) { return error_suffix(static_cast<ErrModule>(module), static_cast<ErrCode>(code)); },
      py::arg("module"), py::arg("code"));
}

}  // namespace cann::python
