#pragma once
// Element-wise reduction of the ranks' contributions on the host: chooses the kernel (kernels/reduction.h).
//
// The parts are combined in the order given (rank order), so a result does not depend on timing. fp16 and bf16 are
// accumulated in fp32 and rounded once. No state; thread-safe.

#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

// outs[k][i] = parts[0][i] op parts[1][i] op ... for `count` elements of `dtype`, the same in every out. factors[r]
// multiplies parts[r] under kPremultipliedSum and is not read otherwise. kAverage divides by `divisor`, or the
// number of parts if that is 0, towards zero for integers; kSum and kProduct of bool are "or" and "and". An out may be
// one of the parts. `stream` writes past the caches, for results too large to stay in them. Raises
// std::invalid_argument for a dtype or reduction that does not fit; the process group has refused those before.
void reduce_in_order(Reduction reduction, DataType dtype, const std::vector<const std::byte*>& parts,
                     const std::vector<double>& factors, const std::vector<std::byte*>& outs, size_t count,
                     bool stream = false, int divisor = 0);

}  // namespace cann::hccl
