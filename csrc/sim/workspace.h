#pragma once
// What an operator's kernel takes of HBM for itself while it runs. Torch-free, stateless.
//
// torch_npu keeps one such buffer, which grows to the largest that was asked for. Sizes come from the tiling code of
// CANN's published operators where it says them, and are our estimates otherwise; each is a range.

#include <cstdint>

#include "sim/cost_model.h"

namespace cann::sim {

struct Workspace {
  int64_t bytes = 0;
  int64_t low = 0;
  int64_t high = 0;
};

// Nothing for operators that are not in the table.
Workspace workspace_of(const OperatorDesc& op, const Soc& soc);

}  // namespace cann::sim
