// torch_cann._C: what Python sees of the runtime and of the process group.

#include "aten/register.h"
#include "python/bindings.h"

#include <torch/version.h>

PYBIND11_MODULE(_C, m) {
  m.doc() = "Bindings of the simulated NPU. Private: use torch.npu, torch_npu and torch.distributed.";
  // The PyTorch this was compiled for; torch_cann/__init__.py compares.
  m.attr("_torch_version") = TORCH_VERSION;
  cann::aten::register_operators();
  cann::python::bind_device(m);
  cann::python::bind_memory(m);
  cann::python::bind_memory_history(m);
  cann::python::bind_stream(m);
  cann::python::bind_random(m);
  cann::python::bind_storage(m);
  cann::python::bind_simulator(m);
  cann::python::bind_sanitizer(m);
  bind_distributed(m);
}
