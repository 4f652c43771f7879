#include "kernels/swiglu.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// 1 / v for v from 1 to 2, within a unit in the last place; NaN for NaN.
CANN_INLINE Vec reciprocal(Vec v) {
#if defined(__AVX512F__)
  const Vec near = _mm512_rcp14_ps(v);  // to 14 bits; Newton's step doubles them, in a third of a division's time
  return near * fma(-v, near, broadcast(2.0f));
#else
  return broadcast(1.0f) / v;
#endif
}

// 1 / (1 + e^-x), from an exponential that cannot overflow. 0 below -87.3.
CANN_INLINE Vec sigmoid(Vec x) {
  const Vec e = exp_nonpositive(-abs(x)), one = broadcast(1.0f);
  return select((IntVec)(x < Vec{}), e, one) * reciprocal(one + e);
}

template <class T>
void swiglu_range(void* y_, const void* gate_, const void* up_, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T *gate = static_cast<const T*>(gate_), *up = static_cast<const T*>(up_);
  for_each_vector(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec x = read(gate);
        write(y, x * sigmoid(x) * read(up));
      });
}

template <class T>
void swiglu_backward_range(void* dgate_, void* dup_, const void* dy_, const void* gate_, const void* up_, int64_t n) {
  T *dgate = static_cast<T*>(dgate_), *dup = static_cast<T*>(dup_);
  const T *dy = static_cast<const T*>(dy_), *gate = static_cast<const T*>(gate_), *up = static_cast<const T*>(up_);
  for_each_vector(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec x = read(gate), g = read(dy), one = broadcast(1.0f), s = sigmoid(x);
        // d/dx of x s(x), since s' = s (1 - s)
        write(dgate, g * read(up) * (s * fma(x, one - s, one)));
        write(dup, g * (x * s));
      });
}

}  // namespace

extern const SwigluKernels swiglu = {
    .forward = {&swiglu_range<float>, &swiglu_range<BFloat16>, &swiglu_range<Half>},
    .backward = {&swiglu_backward_range<float>, &swiglu_backward_range<BFloat16>, &swiglu_backward_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
