#include "kernels/activation.h"

#include <utility>

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// Value and derivative of an activation at x.
template <Activation kOf>
struct Curve;

// ---- GELU

// x within +-14, beyond which no tail is left in float.
CANN_INLINE Vec cut_off(Vec x) { return larger(broadcast(-14.0f), smaller(broadcast(14.0f), x)); }

// The standard normal distribution at x, cut off.
struct Normal {
  Vec exponential;  // e^(-x^2 / 2)
  Vec tail;         // P(X < -|x|)
};

CANN_INLINE Normal normal_at(Vec x) {
  const Vec distance = abs(cut_off(x));
  // P(X < -u) e^(u^2 / 2) as a quotient of polynomials, fitted for 0 <= u <= 14 to a relative error of 6e-9.
  Vec p = broadcast(4.077664265995088e-3f);
  p = fma(p, distance, broadcast(4.0372922497503516e-2f));
  p = fma(p, distance, broadcast(0.18246292619242885f));
  p = fma(p, distance, broadcast(0.43725239201404004f));
  p = fma(p, distance, broadcast(0.5f));
  Vec q = broadcast(1.022105980397065e-2f);
  q = fma(q, distance, broadcast(0.10120671848620012f));
  q = fma(q, distance, broadcast(0.4674319918622102f));
  q = fma(q, distance, broadcast(1.199295285978657f));
  q = fma(q, distance, broadcast(1.6723897393797222f));
  q = fma(q, distance, broadcast(1.0f));
  const Vec e = exp_nonpositive(distance * distance * broadcast(-0.5f));
  return {e, e * (p * reciprocal(q))};
}

template <>
struct Curve<Activation::kGelu> {
  // P(X < x) - 1/2 is x times a quotient of polynomials of x^2, fitted for |x| <= 5.75 to 1.4e-8, beyond which the
  // probability is 0 or 1 in float. It takes two thirds of the time of normal_at(), and loses what of the probability
  // is below 6e-8, as ATen does.
  CANN_INLINE_MEMBER static Vec value(Vec x) {
    const Vec limit = broadcast(5.75f), half = broadcast(0.5f);
    const Vec v = larger(-limit, smaller(limit, x)), t = v * v;
    Vec p = broadcast(2.13358306609817e-08f);
    p = fma(p, t, broadcast(6.35015600892973e-06f));
    p = fma(p, t, broadcast(1.801093265400048e-4f));
    p = fma(p, t, broadcast(4.745456140949401e-3f));
    p = fma(p, t, broadcast(3.5041900588290216e-2f));
    p = fma(p, t, broadcast(0.39894225255390403f));
    Vec q = broadcast(1.1559276661216147e-06f);
    q = fma(q, t, broadcast(7.683348211190304e-05f));
    q = fma(q, t, broadcast(1.9491016181499646e-3f));
    q = fma(q, t, broadcast(2.9314065818393322e-2f));
    q = fma(q, t, broadcast(0.25450284868838907f));
    q = fma(q, t, broadcast(1.0f));
    const Vec probability = larger(Vec{}, smaller(broadcast(1.0f), fma(v * p, reciprocal(q), half)));
    return x * probability;
  }
  CANN_INLINE_MEMBER static Vec slope(Vec x) {
    const Normal at = normal_at(x);
    const Vec probability = select((IntVec)(x < Vec{}), at.tail, broadcast(1.0f) - at.tail);
    return fma(x * at.exponential, broadcast(0.39894228f), probability);  // 1 / sqrt(2 pi)
  }
};

// ---- GELU by the hyperbolic tangent: x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))

template <>
struct Curve<Activation::kGeluTanh> {
  static constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.0713548162726009f;   // 0.044715 of it

  CANN_INLINE_MEMBER static Vec exponent(Vec x) { return x * fma(x * x, broadcast(kCubic), broadcast(kLinear)); }

  CANN_INLINE_MEMBER static Vec value(Vec x) { return x * sigmoid(exponent(x)).value; }
  CANN_INLINE_MEMBER static Vec slope(Vec x) {
    const Vec v = cut_off(x);
    const Sigmoid s = sigmoid(exponent(v));
    return fma(x * s.slope, fma(v * v, broadcast(3 * kCubic), broadcast(kLinear)), s.value);
  }
};

// ---- SiLU

template <>
struct Curve<Activation::kSilu> {
  CANN_INLINE_MEMBER static Vec value(Vec x) { return x * sigmoid(x).value; }
  CANN_INLINE_MEMBER static Vec slope(Vec x) {
    const Sigmoid s = sigmoid(x);
    return fma(x, s.slope, s.value);
  }
};

template <Activation kOf, class T>
void forward_range(void* y, const void* x_, int64_t n, bool past_caches) {
  const T* x = static_cast<const T*>(x_);
  write_alike(
      static_cast<T*>(y), n,
      past_caches, [=](auto read) __attribute__((always_inline)) { return Curve<kOf>::value(read(x)); });
  if (past_caches) finish_streaming();
}

template <Activation kOf, class T>
void backward_range(void* dx, const void* dy_, const void* x_, int64_t n, bool past_caches) {
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  write_alike(
      static_cast<T*>(dx), n,
      past_caches, [=](auto read) __attribute__((always_inline)) { return read(dy) * Curve<kOf>::slope(read(x)); });
  if (past_caches) finish_streaming();
}

template <int... kOf>
constexpr ActivationKernels make_table(std::integer_sequence<int, kOf...>) {
  return {.forward = {{&forward_range<static_cast<Activation>(kOf), float>,
                       &forward_range<static_cast<Activation>(kOf), BFloat16>,
                       &forward_range<static_cast<Activation>(kOf), Half>}...},
          .backward = {{&backward_range<static_cast<Activation>(kOf), float>,
                        &backward_range<static_cast<Activation>(kOf), BFloat16>,
                        &backward_range<static_cast<Activation>(kOf), Half>}...}};
}

}  // namespace

extern const ActivationKernels activation = make_table(std::make_integer_sequence<int, kActivations>{});

}  // namespace cann::kernels::CANN_KERNEL_SET
