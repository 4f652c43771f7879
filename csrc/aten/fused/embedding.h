#pragma once
// The dense gradient of an embedding's table; see embedding.cpp.

#include <torch/library.h>

namespace cann::aten {

void register_fused_embedding(torch::Library& aten);

}  // namespace cann::aten
