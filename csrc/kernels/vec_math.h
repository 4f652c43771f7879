#pragma once
// Exponential and normal distribution on vectors. Errors were measured against double over the ranges named.

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

// The normal distribution at x: the density, and the probability of less than x. Relative error of the probability
// below 1e-6 down to x = -8, absolute error below 1e-7.
struct Normal {
  Vec density;
  Vec probability;
};

CANN_INLINE Normal normal_distribution(Vec x) {
  const Vec z = abs(x) * broadcast(0.70710678f);
  const Vec gauss = exp(broadcast(-0.5f) * x * x);
  // erfc(z) e^(z^2) as a polynomial in t = 1 / (1 + 0.3 z), fitted for 0 <= z <= 9 (error 2e-8).
  const Vec t = broadcast(1.0f) / fma(z, broadcast(0.3f), broadcast(1.0f));
  Vec p = broadcast(-0.12925485f);
  p = fma(p, t, broadcast(0.48415214f));
  p = fma(p, t, broadcast(-0.50909251f));
  p = fma(p, t, broadcast(0.54369748f));
  p = fma(p, t, broadcast(-0.09154771f));
  p = fma(p, t, broadcast(0.21343091f));
  p = fma(p, t, broadcast(0.14877798f));
  p = fma(p, t, broadcast(0.17064360f));
  p = fma(p, t, broadcast(0.16919297f));
  const Vec tail = broadcast(0.5f) * gauss * p * t;
  const Vec probability = select((IntVec)(x > Vec{}), broadcast(1.0f) - tail, tail);
  return {broadcast(0.39894228f) * gauss, select((IntVec)(x != x), x, probability)};
}

}  // namespace cann::kernels::CANN_KERNEL_SET
