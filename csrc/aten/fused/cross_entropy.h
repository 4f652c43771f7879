#pragma once
// Cross entropy, which PyTorch composes, as one operator with a derivative of its own.

#include <torch/library.h>

namespace cann::aten {

// Of plain logits and classes; everything else stays composed ("aten", AutogradPrivateUse1).
void register_fused_cross_entropy(torch::Library& autograd);

}  // namespace cann::aten
