#pragma once
// Element-wise reduction of the ranks' contributions on the host.
//
// The parts are combined in the order given (rank order), so a result does not depend on timing. fp16 and bf16 are
// accumulated in fp32 and rounded once. No state; thread-safe.

#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

// out[i] = parts[0][i] op parts[1][i] op ... for `count` elements of `dtype`. factors[r] multiplies parts[r] under
// kPremultipliedSum and is not read otherwise. kAverage divides by the number of parts, towards zero for integers;
// kSum and kProduct of bool are "or" and "and". `out` may be one of the parts.
// Raises RuntimeError for a dtype or reduction that does not fit; the process group has refused those before.
void reduce_in_order(Reduction reduction, c10::ScalarType dtype, const std::vector<const std::byte*>& parts,
                     const std::vector<double>& factors, std::byte* out, size_t count);

// "SUM", "AVG", ...: the name torch.distributed.ReduceOp gives it.
const char* reduction_name(Reduction reduction);

}  // namespace cann::hccl
