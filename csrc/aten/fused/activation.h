#pragma once
// GELU and SiLU; see activation.cpp.

#include <torch/library.h>

namespace cann::aten {

void register_fused_activations(torch::Library& aten);

}  // namespace cann::aten
