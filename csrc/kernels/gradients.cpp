#include "kernels/gradients.h"

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

constexpr int64_t kBlock = 4096;

template <class T>
double sum_of_squares_range(const void* x_, int64_t n) {
  const T* x = static_cast<const T*>(x_);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    Vec part[4] = {};
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const Vec v = load(x + i + k * kLanes);
        part[k] = fma(v, v, part[k]);
      }
    }
    for (; i + kLanes <= end; i += kLanes) {
      const Vec v = load(x + i);
      part[0] = fma(v, v, part[0]);
    }
    if (i < end) {
      const Vec v = load_some(x + i, end - i);
      part[1] = fma(v, v, part[1]);
    }
    sum += (double)sum_lanes((part[0] + part[1]) + (part[2] + part[3]));
  }
  return sum;
}

// All bits set where an element is infinite or NaN: the exponent is all ones.
CANN_INLINE IntVec non_finite(Vec v) {
  const IntVec exponent = broadcast_int(0x7f800000);
  return (bits_of(v) & exponent) == exponent;
}

template <class T>
bool unscale_range(void* x_, float scale, int64_t n) {
  T* x = static_cast<T*>(x_);
  const Vec factor = broadcast(scale);
  IntVec found = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load(x + i);
    found |= non_finite(v);
    if (scale != 1.0f) store(x + i, v * factor);
  }
  if (i < n) {
    const Vec v = load_some(x + i, n - i);
    found |= non_finite(v);
    if (scale != 1.0f) store_some(x + i, v * factor, n - i);
  }
  int32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= found[lane];
  return any != 0;
}

}  // namespace

extern const GradientKernels gradients = {
    .sum_of_squares = {&sum_of_squares_range<float>, &sum_of_squares_range<BFloat16>, &sum_of_squares_range<Half>},
    .unscale = {&unscale_range<float>, &unscale_range<BFloat16>, &unscale_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
