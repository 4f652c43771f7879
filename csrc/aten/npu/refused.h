#pragma once

#include <span>

#include "aten/npu/registry.h"

namespace cann::aten::npu {

// A row of the tables in refused_*.cpp: an operator that is known but not implemented.
struct Refused {
  const char* id;  // name.overload, of namespace npu unless it begins with "atb::"
  const char* signature;
  const char* needs;  // "it would need ..."
};

// Defines all of them, so that calling one raises NotImplementedError with what it would need.
inline void refuse(Registry& ops, std::span<const Refused> table) {
  for (const Refused& row : table) ops.refuse(row.id, row.signature, row.needs);
}

}  // namespace cann::aten::npu
