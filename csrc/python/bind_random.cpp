// The default generators of the cards.

#include "python/bindings.h"
#include "runtime/generator.h"

namespace cann::python {

void bind_random(py::module_& m) { m.def("_npu_default_generator", &default_generator, py::arg("device")); }

}  // namespace cann::python
