#pragma once
// The exponential, the reciprocal, the logistic function and the hyperbolic tangent on vectors. Errors were measured
// against double over the ranges named.

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

// e^x for x that are not above 0, as softmax and sigmoid have them; relative error below 2e-7. 0 below -87.3 (where
// float has subnormals only), NaN for NaN.
CANN_INLINE Vec exp_nonpositive(Vec x) {
  const Vec low = broadcast(-87.3f);
  const Vec clamped = larger(low, x);  // x where it is NaN
#if defined(__AVX512F__)
  // An instruction multiplies by 2^n.
  const Vec whole = _mm512_maskz_roundscale_ps(0xffff, clamped * broadcast(1.44269504f),
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), exp_of_rest(clamped, whole), whole);
#else
  const IntVec whole = round_to_int(clamped * broadcast(1.44269504f));
  const Vec p = exp_of_rest(clamped, to_float(whole));
  return select((IntVec)(x < low), Vec{}, p * from_bits((whole + 127) << 23));
#endif
}

// 1 / v for finite v from 1 on, within a unit in the last place; NaN for NaN.
CANN_INLINE Vec reciprocal(Vec v) {
#if defined(__AVX512F__)
  const Vec near = _mm512_rcp14_ps(v);  // to 14 bits; Newton's step doubles them, in a third of a division's time
  return near * fma(-v, near, broadcast(2.0f));
#else
  return broadcast(1.0f) / v;
#endif
}

// s(x) = 1 / (1 + e^-x) and s'(x) = s(x) s(-x), from an exponential that cannot overflow; the difference 1 - s, which
// loses digits, is not taken. 0 below -87.3.
struct Sigmoid {
  Vec value;
  Vec slope;
};

CANN_INLINE Sigmoid sigmoid(Vec x) {
  const Vec e = exp_nonpositive(-abs(x)), one = broadcast(1.0f), r = reciprocal(one + e), low = e * r;
  return {select((IntVec)(x < Vec{}), low, r), low * r};
}

// tanh x, relative error below 2e-7; NaN for NaN.
CANN_INLINE Vec tanh(Vec x) {
  const Vec one = broadcast(1.0f), distance = abs(x), square = x * x;
  // (1 - e) / (1 + e) loses digits near zero: there x + x^3 times a polynomial of x^2, fitted for |x| <= 0.625 to a
  // relative error of 5e-9.
  const Vec e = exp_nonpositive(broadcast(-2.0f) * distance), far = (one - e) * reciprocal(one + e);
  Vec p = broadcast(-5.700208712369204e-3f);
  p = fma(p, square, broadcast(2.0634382963180542e-2f));
  p = fma(p, square, broadcast(-5.3738098591566086e-2f));
  p = fma(p, square, broadcast(0.13331419229507446f));
  p = fma(p, square, broadcast(-0.3333328068256378f));
  const Vec near = fma(x * square, p, x),
            signed_far = from_bits(bits_of(far) | (bits_of(x) & bits_of(broadcast(-0.0f))));
  return select((IntVec)(distance < broadcast(0.625f)), near, signed_far);
}

}  // namespace cann::kernels::CANN_KERNEL_SET
