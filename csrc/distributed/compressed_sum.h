#pragma once
// all_reduce of float32 sums and means in a lossy form (wire_codec.h), as a plan. No torch here.
//
// Two steps, as direct all_reduce: slice r of the tensor, encoded, goes to rank r, which decodes and adds in float32 in
// rank order, its own part exact; then the encoded sums go to everybody. All ranks, the owner too, keep what the
// encoded sum decodes to, so results are bitwise equal. A rank sends 2 (n-1) times the encoded size of a slice.

#include "distributed/plan.h"
#include "distributed/wire_codec.h"

namespace cann::hccl {

// From this size on an operation is worth encoding.
inline constexpr size_t kCompressedBytes = 64 * 1024;

// Whether `format` says how `bytes` of this operation travel; if not, they travel exactly.
bool is_compressed(const WireFormat& format, const Call& call, size_t bytes);

// In place. `residuals` are used where the format feeds errors back, and must outlive the plan. is_compressed() holds.
Plan compressed_sum_plan(const WireFormat& format, const Call& call, int rank, int n, Span data, Residuals& residuals,
                         Scratch& scratch);

}  // namespace cann::hccl
