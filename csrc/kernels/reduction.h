#pragma once
// Element-wise reduction of the ranks' contributions to a collective, and copies past the caches.
//
// Parts are combined in the order given, so a result does not depend on who computes it or when. 16-bit elements are
// accumulated in float and rounded once; float64 in float64; integers wrap.

#include <cstddef>
#include <cstdint>

#include "kernels/declare.h"

namespace cann::kernels {

enum class Combine { kSum, kProduct, kMin, kMax, kAverage, kScaledSum };
inline constexpr int kCombines = 6;

// Bool is uint8 with kMax for "or" and kMin for "and".
enum class Reduced { kFloat32, kFloat16, kBFloat16, kInt8, kUInt8, kInt16, kInt32, kInt64, kUInt64, kFloat64 };
inline constexpr int kReducedTypes = 10;

struct Parts {
  const void* const* parts;  // `count` of them
  const double* factors;     // of kScaledSum, one per part; not read otherwise
  int count;
  int divisor;  // of kAverage: what the sum is divided by, `count` when the parts are all there is
};

// outs[k][i] = parts[0][i] op parts[1][i] op ... for i < n and every k < out_count. kScaledSum multiplies each part by
// its factor first; kAverage divides the sum by the divisor, towards zero for integers. kMin and kMax of floats
// are NaN if any part is. Each out may be one of the parts, but must not overlap them otherwise. With `stream` the
// results bypass the caches, where they are aligned to a vector. kScaledSum exists for floats only (nullptr otherwise).
using ReductionKernel = void (*)(const Parts& parts, void* const* outs, int out_count, int64_t n, bool stream);

struct ReductionKernels {
  ReductionKernel table[kCombines][kReducedTypes];
  // Copies n bytes between ranges that do not overlap, bypassing the caches on the side of `out`.
  void (*stream_copy)(void* out, const void* in, size_t n);

  ReductionKernel get(Combine op, Reduced type) const { return table[static_cast<int>(op)][static_cast<int>(type)]; }
};

CANN_DECLARE_KERNELS(ReductionKernels, reduction)

}  // namespace cann::kernels
