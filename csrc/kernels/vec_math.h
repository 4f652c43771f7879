#pragma once
// The exponential on vectors. Its error was measured against double over the range named.

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {

// e^(x - n ln 2) for n the integer nearest to x / ln 2.
CANN_INLINE Vec exp_of_rest(Vec x, Vec n) {
  // ln 2 is in two parts, the first of which times n is exact; then a minimax polynomial.
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.3814610e-3f);
  p = fma(p, r, broadcast(8.36871e-3f));
  p = fma(p, r, broadcast(4.1668389e-2f));
  p = fma(p, r, broadcast(0.16666521f));
  p = fma(p, r, broadcast(0.49999994f));
  p = fma(p, r, broadcast(1.0f));
  return fma(p, r, broadcast(1.0f));
}

// e^x; relative error below 2e-7. 0 below -87.3 (where float has subnormals only), infinity above 88.7, NaN for NaN.
CANN_INLINE Vec exp(Vec x) {
  const Vec low = broadcast(-87.3f), high = broadcast(88.7f);
  const Vec clamped = select((IntVec)(x > low), select((IntVec)(x < high), x, high), low);
  const Vec n = to_float(round_to_int(clamped * broadcast(1.44269504f)));
  const Vec p = exp_of_rest(clamped, n);
  // 2^n in two factors, since n may be 128.
  const IntVec whole = round_to_int(n), half = whole >> 1;
  const Vec scaled = p * from_bits((half + 127) << 23) * from_bits((whole - half + 127) << 23);
  Vec result = select((IntVec)(x < low), Vec{}, scaled);
  result = select((IntVec)(x > high), from_bits(broadcast_int(0x7f800000)), result);
  return select((IntVec)(x != x), x, result);
}

// The same for x that are not above 0, where it needs fewer instructions: the exponentials of a softmax.
CANN_INLINE Vec exp_nonpositive(Vec x) {
  const Vec low = broadcast(-87.3f);
  const Vec clamped = larger(low, x);  // x where it is NaN
  const IntVec whole = round_to_int(clamped * broadcast(1.44269504f));
  const Vec p = exp_of_rest(clamped, to_float(whole));
  return select((IntVec)(x < low), Vec{}, p * from_bits((whole + 127) << 23));
}

}  // namespace cann::kernels::CANN_KERNEL_SET
