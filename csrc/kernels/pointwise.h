#pragma once
// Pointwise arithmetic on one to three ranges of the same element type: what optimizers do to lists of tensors.
//
// Float32 results equal ATen's CPU kernels to the bit on a CPU with fused multiply-add: the formulas below say which
// products and sums share one rounding, fma(x, y, z) = x * y + z.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

enum class Pointwise {
  kAdd,           // fma(b, s, a)
  kMul,           // a * b
  kDiv,           // a / b
  kMaximum,       // max(a, b), NaN if either is
  kMinimum,       // min(a, b), NaN if either is
  kAddScalar,     // a + s
  kMulScalar,     // a * s
  kDivScalar,     // a / s
  kLerp,          // |s| < 0.5: fma(b - a, s, a), else fma(-(b - a), 1 - s, b)
  kAddcmul,       // fma(s * b, c, a)
  kAddcdiv,       // a + (s * b) / c
  kSqrt,          // sqrt(a)
  kReciprocal,    // 1 / a
  kNeg,           // -a
  kAbs,           // |a|
  kClampMin,      // max(a, s); a if equal or NaN
  kClampMax,      // min(a, s); a if equal or NaN
  kReluBackward,  // b <= 0 ? 0 : a
};
inline constexpr int kPointwiseOps = 18;

// out[i] = f(a[i], b[i], c[i]; s) for i < n, in the formulas of Pointwise; ranges a formula does not name are not read.
// `out` may be one of the others, but must not overlap them otherwise. 16-bit elements are computed in float and
// rounded once.
using PointwiseKernel = void (*)(void* out, const void* a, const void* b, const void* c, float s, int64_t n);

struct PointwiseKernels {
  PointwiseKernel table[kPointwiseOps][kElements];
  // For float32, storing past the caches: for results larger than these. `out` must be aligned to 64 bytes.
  PointwiseKernel streaming[kPointwiseOps];

  PointwiseKernel get(Pointwise op, Element element) const {
    return table[static_cast<int>(op)][static_cast<int>(element)];
  }
};

CANN_DECLARE_KERNELS(PointwiseKernels, pointwise)

}  // namespace cann::kernels
