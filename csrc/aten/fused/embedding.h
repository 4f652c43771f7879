#pragma once
// Embeddings and the dense gradient of their table; see embedding.cpp.

#include <torch/library.h>

namespace cann::aten {

void register_fused_embedding(torch::Library& aten);

}  // namespace cann::aten
