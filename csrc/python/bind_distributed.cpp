// torch_cann._C._distributed_c10d: ProcessGroupHCCL and its Options, under the names of torch_npu._C._distributed_c10d.
//
// Collectives, point-to-point operations and the life cycle come with the base class that torch binds; only what HCCL
// adds is bound here.

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/dry_process_group.h"
#include "distributed/flight_recorder.h"
#include "distributed/hccl_env.h"
#include "distributed/interrupt.h"
#include "distributed/process_group_hccl.h"
#include "distributed/wait_log.h"
#include "python/bindings.h"

namespace {

// Holds the process group for Python and lets go of the GIL while the last reference dies: the destructor waits for
// threads that may need the GIL to finish a callback. The same layout as intrusive_ptr, which the base class is held
// by.
template <typename T>
class NoGilIntrusivePtr {
 public:
  NoGilIntrusivePtr() = default;
  explicit NoGilIntrusivePtr(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}
  explicit NoGilIntrusivePtr(T* raw) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(raw)) {}
  NoGilIntrusivePtr(const NoGilIntrusivePtr&) = default;
  NoGilIntrusivePtr(NoGilIntrusivePtr&&) noexcept = default;
  NoGilIntrusivePtr& operator=(const NoGilIntrusivePtr&) = default;
  NoGilIntrusivePtr& operator=(NoGilIntrusivePtr&&) noexcept = default;
  ~NoGilIntrusivePtr() {
    if (pointer_ && PyGILState_Check()) {
      const pybind11::gil_scoped_release no_gil;
      pointer_.reset();
    }
  }
  T* get() const { return pointer_.get(); }
  T& operator*() const { return *pointer_; }
  T* operator->() const { return pointer_.get(); }
  explicit operator bool() const { return static_cast<bool>(pointer_); }

 private:
  c10::intrusive_ptr<T> pointer_;
};

}  // namespace

PYBIND11_DECLARE_HOLDER_TYPE(T, NoGilIntrusivePtr<T>, true)

namespace {

namespace py = pybind11;
using cann::hccl::Config;
using cann::hccl::ConfigValue;
using cann::hccl::Options;
using cann::hccl::ProcessGroupHCCL;
using cann::hccl::UnsupportedType;
using Milliseconds = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using NoGil = py::call_guard<py::gil_scoped_release>;

Config to_config(const py::dict& values) {
  Config config;
  for (const auto& [key, value] : values) {
    ConfigValue& entry = config[py::cast<std::string>(key)];
    if (py::isinstance<py::bool_>(value)) {
      entry = UnsupportedType{"bool"};
    } else if (py::isinstance<py::int_>(value)) {
      entry = py::cast<int64_t>(value);
    } else if (py::isinstance<py::str>(value)) {
      entry = py::cast<std::string>(value);
    } else {
      entry = UnsupportedType{py::cast<std::string>(py::type::of(value).attr("__name__"))};
    }
  }
  return config;
}

py::dict from_config(const Config& config) {
  py::dict values;
  for (const auto& [key, value] : config) {
    if (const auto* number = std::get_if<int64_t>(&value)) values[key.c_str()] = *number;
    if (const auto* text = std::get_if<std::string>(&value)) values[key.c_str()] = *text;
  }
  return values;
}

// Only Python can make a ProcessGroupGloo: the wheel has no headers for it.
cann::hccl::GlooMaker gloo_maker(Milliseconds timeout) {
  return [timeout](const StorePtr& store, int rank, int size) {
    const auto& env = cann::hccl::HcclEnv::get();
    const Milliseconds limit = env.connect_timeout ? Milliseconds(*env.connect_timeout) : timeout;
    const py::gil_scoped_acquire gil;
    const auto module = py::module_::import("torch_cann.distributed._gloo");
    return module.attr("make_gloo")(store, rank, size, timeout, limit, env.host_address, env.interface)
        .cast<c10::intrusive_ptr<c10d::Backend>>();
  };
}

NoGilIntrusivePtr<ProcessGroupHCCL> make_group(const StorePtr& store, int rank, int size,
                                               c10::intrusive_ptr<Options> options) {
  const py::gil_scoped_release no_gil;  // waits for the other ranks
  auto maker = gloo_maker(options->timeout);
  return NoGilIntrusivePtr<ProcessGroupHCCL>(
      ProcessGroupHCCL::make(store, std::move(maker), rank, size, std::move(options)));
}

// Runs Python's signal handlers, of which that of Ctrl-C raises. Only the main thread has any to run.
void check_signals() {
  if (gettid() != getpid() || !Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void bind_options(py::class_<ProcessGroupHCCL, NoGilIntrusivePtr<ProcessGroupHCCL>, c10d::Backend>& group) {
  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(group, "Options")
      .def(py::init<>())
      .def_readwrite("op_timeout", &Options::op_timeout)
      .def_readwrite("is_high_priority_stream", &Options::is_high_priority_stream)
      .def_readwrite("group_id", &Options::group_id)
      .def_property(
          "hccl_config", [](const Options& self) { return from_config(self.config()); },
          [](Options& self, const py::dict& values) { self.set_config(to_config(values)); })
      .def_property("wire", &Options::wire, &Options::set_wire)
      .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });
}

}  // namespace

void bind_distributed(py::module_& m) {
  py::module_::import("torch._C._distributed_c10d");  // registers the base classes
  cann::hccl::set_interrupt_check(&check_signals);
  auto c10d = m.def_submodule("_distributed_c10d", "The process group of backend \"hccl\".");

  using cann::hccl::DryProcessGroup;
  py::class_<DryProcessGroup, c10::intrusive_ptr<DryProcessGroup>, c10d::Backend>(c10d, "DryProcessGroup")
      .def(py::init<int, int, std::string, std::vector<int>>(), py::arg("rank"), py::arg("size"), py::arg("name"),
           py::arg("global_ranks"))
      .def_property_readonly("options", &DryProcessGroup::options)
      .def("_set_default_timeout", &DryProcessGroup::setTimeout, py::arg("timeout"));

  c10d.def(
      "_dump_hccl_trace_json",
      [](bool include_collectives, bool only_active) {
        const auto& recorder = cann::hccl::FlightRecorder::get();
        return py::bytes(include_collectives ? recorder.to_json(only_active) : "{}");
      },
      py::arg("includeCollectives") = true, py::arg("onlyActive") = false,
      "The flight recorder's operations; none unless TORCH_HCCL_TRACE_BUFFER_SIZE is set.");

  c10d.def(
      "_waits",
      [] {
        py::list all;
        for (const auto& entry : cann::hccl::WaitLog::get().entries()) {
          all.append(py::make_tuple(entry.group, entry.p2p, entry.sequence, entry.ran.count(), entry.waited.count(),
                                    entry.synchronization.count()));
        }
        return all;
      },
      "(group, p2p, sequence, ns run, of these waited for other ranks, of these until all had come) of the last "
      "operations that a profiler listened to, oldest first.");

  c10d.def("_close_all", &ProcessGroupHCCL::close_all, NoGil(),
           "Ends the communicators of all process groups that are left. For the exit of the interpreter.");

  py::class_<ProcessGroupHCCL, NoGilIntrusivePtr<ProcessGroupHCCL>, c10d::Backend> group(c10d, "ProcessGroupHCCL");
  bind_options(group);
  group.def(py::init(&make_group), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def(py::init([](const StorePtr& store, int rank, int size, Milliseconds timeout) {
             return make_group(store, rank, size, c10::make_intrusive<Options>(timeout));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout") = kBackendDefaultTimeout)
      .def_property_readonly("options", &ProcessGroupHCCL::options)
      .def("get_hccl_comm_name", &ProcessGroupHCCL::communicator_name, py::arg("rankid"), py::arg("init_comm") = true,
           NoGil())
      .def("_set_hccl_comm_name", &ProcessGroupHCCL::set_communicator_name, py::arg("name"))
      .def("get_hccl_comm", &ProcessGroupHCCL::communicator_handle, py::arg("rankid"), NoGil())
      .def("abort_hccl_comm", py::overload_cast<const std::string&>(&ProcessGroupHCCL::abort), py::arg("reason"),
           NoGil())
      .def("_get_error", &ProcessGroupHCCL::getError)
      .def("_rebuild", &ProcessGroupHCCL::rebuild, py::arg("store"), NoGil())
      .def_property_readonly("_rebuilds", &ProcessGroupHCCL::rebuilds)
      .def("_set_default_timeout", &ProcessGroupHCCL::setTimeout, py::arg("timeout"))
      .def("_group_start", &ProcessGroupHCCL::startCoalescing)
      .def("_group_end", &ProcessGroupHCCL::endCoalescing, NoGil())
      // NCCL needs ranks outside of a split to take part; here they have nothing to do.
      .def(
          "perform_nocolor_split", [](const ProcessGroupHCCL&, const at::Device&) {}, py::arg("device"))
      .def("batch_isend_irecv", &ProcessGroupHCCL::batch_isend_irecv, py::arg("op_type"), py::arg("tensors"),
           py::arg("remote_rank_list"), NoGil())
      .def("all_gather_into_tensor_uneven", &ProcessGroupHCCL::all_gather_into_tensor_uneven, py::arg("output"),
           py::arg("input"), py::arg("output_split_sizes") = std::vector<int64_t>(),
           py::arg("opts") = c10d::AllgatherOptions(), NoGil())
      .def("reduce_scatter_tensor_uneven", &ProcessGroupHCCL::reduce_scatter_tensor_uneven, py::arg("output"),
           py::arg("input"), py::arg("input_split_sizes") = std::vector<int64_t>(),
           py::arg("opts") = c10d::ReduceScatterOptions(), NoGil());
}
