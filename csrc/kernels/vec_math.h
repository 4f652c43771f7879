#pragma once
// The exponential on vectors. Its error was measured against double over the range named.

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {

// e^x; relative error below 2e-7. 0 below -87.3 (where float has subnormals only), infinity above 88.7, NaN for NaN.
CANN_INLINE Vec exp(Vec x) {
  const Vec low = broadcast(-87.3f), high = broadcast(88.7f);
  const Vec clamped = select((IntVec)(x > low), select((IntVec)(x < high), x, high), low);
  const Vec n = to_float(round_to_int(clamped * broadcast(1.44269504f)));
  // x = n ln 2 + r with ln 2 in two parts, the first of which times n is exact; then a minimax polynomial in r.
  Vec r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.3814610e-3f);
  p = fma(p, r, broadcast(8.36871e-3f));
  p = fma(p, r, broadcast(4.1668389e-2f));
  p = fma(p, r, broadcast(0.16666521f));
  p = fma(p, r, broadcast(0.49999994f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  // 2^n in two factors, since n may be 128.
  const IntVec whole = round_to_int(n), half = whole >> 1;
  const Vec scaled = p * from_bits((half + 127) << 23) * from_bits((whole - half + 127) << 23);
  Vec result = select((IntVec)(x < low), Vec{}, scaled);
  result = select((IntVec)(x > high), from_bits(broadcast_int(0x7f800000)), result);
  return select((IntVec)(x != x), x, result);
}

}  // namespace cann::kernels::CANN_KERNEL_SET
