// torch_cann._C._sim: the virtual clock, the chip table, the replay of several ranks, and what a dry run asks Python.
//
// Lists of actions cross as bytes, an array of sim::Action (48 bytes each), which NumPy reads without a copy.

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "distributed/dry_exchange.h"
#include "distributed/dry_process_group.h"
#include "python/bindings.h"
#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/simulator.h"
#include "runtime/workspaces.h"
#include "sim/server.h"
#include "sim/shared_links.h"

namespace cann::python {
namespace {

// ---- call sites ---------------------------------------------------------------------------------------------------

// Lines of the program, by index; 0 is "none". Guarded by the GIL.
class Sites {
 public:
  std::vector<std::string> names{""};
  std::vector<std::string> internal;  // prefixes of files that are not the program's own

  // The innermost line of the calling thread that is the program's own.
  uint32_t current() {
    PyFrameObject* frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    uint32_t found = 0;
    while (frame != nullptr && found == 0) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      if (!is_internal(code)) found = site(frame, code);
      Py_DECREF(code);
      PyFrameObject* back = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = back;
    }
    Py_XDECREF(frame);
    return found;
  }

 private:
  bool is_internal(PyCodeObject* code) {
    const auto [it, fresh] = internal_.try_emplace(code, false);
    if (!fresh) return it->second;
    Py_INCREF(code);  // so that its address stays its own
    const std::string file = py::cast<std::string>(py::handle(code->co_filename));
    bool inside = file.empty() || file[0] == '<';
    for (const std::string& prefix : internal) inside |= file.starts_with(prefix);
    it->second = inside;
    return inside;
  }

  uint32_t site(PyFrameObject* frame, PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
    // Python finds a line by reading a table from its start; an instruction's is looked up once.
    const auto [known, first] = instructions_.try_emplace({code, PyFrame_GetLasti(frame)}, 0);
    if (first) known->second = site(code, PyFrame_GetLineNumber(frame));
    return known->second;
#else
    return site(code, PyFrame_GetLineNumber(frame));
#endif
  }

  uint32_t site(PyCodeObject* code, int line) {
    const auto [it, fresh] = sites_.try_emplace({code, line}, static_cast<uint32_t>(names.size()));
    if (fresh) names.push_back(py::cast<std::string>(py::handle(code->co_filename)) + ":" + std::to_string(line));
    return it->second;
  }

  std::unordered_map<PyCodeObject*, bool> internal_;
  std::map<std::pair<PyCodeObject*, int>, uint32_t> sites_;         // by line
  std::map<std::pair<PyCodeObject*, int>, uint32_t> instructions_;  // by instruction, for lines are dear to find
};

Sites& sites() {
  static auto* const made = new Sites();
  return *made;
}

uint32_t current_site() {
  const py::gil_scoped_acquire gil;
  return sites().current();
}

// As what PyTorch's own bindings hand on to Python.
[[noreturn]] void rethrow(py::error_already_set& error) {
  python_error raised;
  error.restore();
  raised.persist();
  throw raised;
}

// ---- what nobody knows --------------------------------------------------------------------------------------------

py::object& unknown_callback() {
  static auto* const callback = new py::object(py::none());
  return *callback;
}

std::optional<double> ask_python(const UnknownRead& read) {
  const py::gil_scoped_acquire gil;
  constexpr const char* kKinds[] = {"value", "copy", "count", "assume"};
  try {
    const auto shape = std::vector<int64_t>(read.tensor.sizes().begin(), read.tensor.sizes().end());
    const py::object answer =
        unknown_callback()(kKinds[read.kind], read.op, shape, c10::toString(read.tensor.scalar_type()));
    return answer.is_none() ? std::nullopt : std::optional(answer.cast<double>());
  } catch (py::error_already_set& error) {
    rethrow(error);
  }
}

// ---- what ranks tell each other -----------------------------------------------------------------------------------

// A Python object with the methods of hccl::DryCourier; a message that nobody knows is None.
class PythonCourier final : public hccl::DryCourier {
 public:
  explicit PythonCourier(py::object courier) : courier_(std::move(courier)) {}

  void meet(int peer) override {
    call([&] { courier_.attr("meet")(peer); });
  }
  void post(const std::string& message, const std::optional<std::string>& bytes, bool shared) override {
    call([&] {
      const py::object content = bytes ? py::object(py::bytes(*bytes)) : py::object(py::none());
      courier_.attr("post")(message, content, shared);
    });
  }
  std::optional<std::string> fetch(int peer, const std::string& message, bool shared) override {
    std::optional<std::string> bytes;
    call([&] {
      const py::object content = courier_.attr("fetch")(peer, message, shared);
      if (!content.is_none()) bytes = content.cast<std::string>();
    });
    return bytes;
  }

 private:
  template <class F>
  static void call(const F& body) {
    const py::gil_scoped_acquire gil;
    try {
      body();
    } catch (py::error_already_set& error) {
      rethrow(error);
    }
  }

  py::object courier_;
};

// ---- conversions --------------------------------------------------------------------------------------------------

py::dict to_dict(const sim::Spent& spent) {
  py::dict d;
  d["cube"] = spent.cube;
  d["vector"] = spent.vector;
  d["copy"] = spent.copy;
  d["exposed_collective"] = spent.exposed_collective;
  d["late_rank"] = spent.late_rank;
  d["host_bound"] = spent.host_bound;
  d["idle"] = spent.idle;
  return d;
}

py::dict to_dict(const sim::Soc& soc) {
  py::dict d;
  d["name"] = soc.name;
  d["cube_cores"] = soc.cube_cores;
  d["vector_cores"] = soc.vector_cores;
  d["cube_mhz"] = soc.cube_freq_mhz;
  d["peak_fp16_tflops"] = soc.peak_fp16_tflops;
  d["fp32_ratio"] = soc.fp32_ratio;
  d["bf16_cube"] = static_cast<bool>(soc.bf16_cube);
  d["hbm_bytes"] = soc.hbm_bytes;
  d["usable_hbm_bytes"] = soc.usable_hbm_bytes;
  d["hbm_gbps"] = soc.hbm_gbps;
  d["mesh_size"] = soc.mesh_size;
  d["nic_gbps"] = soc.nic_gbps;
  return d;
}

template <class T>
py::bytes to_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<sim::Action> to_actions(const py::bytes& data) {
  const std::string_view view = data;
  std::vector<sim::Action> actions(view.size() / sizeof(sim::Action));
  std::memcpy(actions.data(), view.data(), actions.size() * sizeof(sim::Action));
  return actions;
}

py::list rows() {
  py::list all;
  for (uint32_t i = 0; i < simulator::row_count(); ++i) {
    const simulator::Row row = simulator::row(i);
    all.append(py::make_tuple(row.name, sim::name_of(row.cost.engine), row.cost.modelled, row.cost.us, row.cost.flops,
                              row.cost.bytes));
  }
  return all;
}

py::list groups() {
  py::list all;
  for (const auto& group : hccl::dry_groups()) all.append(py::make_tuple(group.name, group.ranks));
  return all;
}

// Each rank: (global rank, actions, names of groups, members of each group among the ranks of this call,
// network_share() of each group).
using ReplayInput =
    std::tuple<int, py::bytes, std::vector<std::string>, std::vector<std::vector<int>>, std::vector<double>>;

py::list replay(const std::vector<ReplayInput>& inputs) {
  std::vector<std::vector<sim::Action>> actions;
  std::vector<sim::RankTrace> traces;
  std::vector<std::vector<double>> shares;
  for (const auto& [rank, data, names, members, network] : inputs) {
    actions.push_back(to_actions(data));
    shares.push_back(network);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [rank, data, names, members, network] = inputs[i];
    traces.push_back({.rank = rank, .actions = actions[i], .groups = names, .members = members});
  }
  py::list results;
  for (const sim::RankResult& result : sim::replay(traces, simulator::topology(), shares)) {
    py::list marks;
    for (size_t i = 0; i < result.marks.size(); ++i) {
      marks.append(py::make_tuple(result.marks[i].first, result.marks[i].second, to_dict(result.spent_at_mark[i])));
    }
    results.append(py::make_tuple(to_bytes(result.start), to_bytes(result.end), to_dict(result.spent), marks));
  }
  return results;
}

// A kernel that is no operator of the dispatcher's: reported as bound by the memory that it reads and writes.
void launch_kernel(const std::string& name, const std::vector<at::Tensor>& reads,
                   const std::vector<at::Tensor>& writes) {
  static auto* const names = new std::set<std::string>();  // Observation keeps a pointer; guarded by the GIL
  const std::string& kept = *names->insert(name).first;
  simulator::Observation seen(kept.c_str(), reinterpret_cast<uintptr_t>(kept.c_str()), /*pointwise=*/true);
  for (const at::Tensor& tensor : reads) seen.read(tensor);
  for (const at::Tensor& tensor : writes) seen.overwrite(tensor);
  seen.finish();
}

sim::Collective collective_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(sim::Collective::kBarrier); ++i) {
    if (name == sim::name_of(static_cast<sim::Collective>(i))) return static_cast<sim::Collective>(i);
  }
  throw py::value_error("there is no collective named " + name);
}

void bind_clock(py::module_& m) {
  m.def("set_on", &simulator::set_on, py::arg("on"));
  m.def("is_on", [] { return simulator::on(); });
  m.def("is_dry", &dry_run);
  m.def("reset", [] { simulator::timeline().reset(); });
  m.def(
      "mark", [](uint32_t label) { return simulator::timeline().mark(label); }, py::arg("label"));
  m.def("now", [] { return simulator::timeline().end(); });
  m.def("spent", [] { return to_dict(simulator::timeline().spent()); });
  m.def(
      "set_recording",
      [](bool on, bool with_sites) { simulator::set_recording(on, on && with_sites ? &current_site : nullptr); },
      py::arg("on"), py::arg("sites") = true);
  m.def("action_count", [] { return simulator::timeline().action_count(); });
  m.def("actions", [] { return to_bytes(simulator::timeline().actions()); });
  m.def("rows", &rows);
  m.def("groups", &groups);
  m.def("launch_kernel", &launch_kernel, py::arg("name"), py::arg("reads"), py::arg("writes"));
  m.def("replay", &replay, py::arg("ranks"));
  m.def("collective_us", [](const std::string& name, double bytes, const std::vector<int>& ranks) {
    return simulator::topology().collective_us(collective_named(name), bytes, simulator::topology().shape_of(ranks));
  });
}

size_t storage_bytes(const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const void*, size_t> storages;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().type() == kNPU && tensor.has_storage()) {
      storages[tensor.storage().data()] = tensor.storage().nbytes();
    }
  }
  size_t bytes = 0;
  for (const auto& [address, size] : storages) bytes += size;
  return bytes;
}

void bind_sites_and_values(py::module_& m) {
  m.def("sites", [] { return sites().names; });
  m.def("current_site", [] { return sites().names.at(sites().current()); });
  m.def("set_internal_files", [](std::vector<std::string> prefixes) { sites().internal = std::move(prefixes); });
  m.def("set_unknown_handler", [](py::object callback) {
    set_unknown_handler(callback.is_none() ? nullptr : &ask_python);
    unknown_callback() = std::move(callback);
  });
  m.def(
      "workspace",
      [](c10::DeviceIndex device) {
        const sim::Workspace held = workspaces::reserved(device);
        return py::make_tuple(held.bytes, held.low, held.high);
      },
      py::arg("device"), "Bytes of the buffer for operators' workspaces, and the range of the estimate.");
  m.def(
      "network_share",
      [](const std::vector<int>& ranks) {
        return sim::network_share(simulator::topology(), simulator::topology().shape_of(ranks));
      },
      py::arg("ranks"), "Share of the time of a collective among these ranks in which bytes are between servers.");
  m.def("values_known", &values_known, py::arg("tensor"));
  m.def("storage_bytes", &storage_bytes, py::arg("tensors"),
        "Bytes of the npu storages behind these tensors, each once.");
  m.def(
      "set_courier",
      [](py::object courier) { hccl::set_dry_courier(std::make_unique<PythonCourier>(std::move(courier))); },
      py::arg("courier"), "An object with meet(peer), post(message, bytes, shared) and fetch(peer, message, shared).");
}

}  // namespace

void bind_simulator(py::module_& m) {
  auto sub = m.def_submodule("_sim", "The device's virtual clock and the dry run. Private: use torch_cann.plan.");
  bind_clock(sub);
  bind_sites_and_values(sub);
  sub.def(
      "soc",
      [](const std::string& name) { return to_dict(name.empty() ? sim::Server::get().soc() : sim::find_soc(name)); },
      py::arg("name") = "");
  sub.def("soc_names", [] {
    std::vector<std::string> names;
    for (const sim::Soc& soc : sim::soc_table()) names.push_back(soc.name);
    return names;
  });
}

}  // namespace cann::python
