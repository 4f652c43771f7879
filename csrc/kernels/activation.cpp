#include "kernels/activation.h"

#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// -infinity gives 0, as the limit is, and not the NaN of infinity times zero.
CANN_INLINE Vec gelu_of(Vec x) {
  const Normal normal = normal_distribution(x);
  return select((IntVec)(normal.probability == Vec{}), Vec{}, x * normal.probability);
}

CANN_INLINE Vec gelu_slope(Vec x) {
  const Normal normal = normal_distribution(x);
  return select((IntVec)(normal.density == Vec{}), normal.probability, fma(x, normal.density, normal.probability));
}

template <class T>
void gelu_range(void* y_, const void* x_, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, gelu_of(load(x + i)));
  if (i < n) store_some(y + i, gelu_of(load_some(x + i, n - i)), n - i);
}

template <class T>
void gelu_backward_range(void* dx_, const void* dy_, const void* x_, int64_t n) {
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dx + i, load(dy + i) * gelu_slope(load(x + i)));
  if (i < n) store_some(dx + i, load_some(dy + i, n - i) * gelu_slope(load_some(x + i, n - i)), n - i);
}

}  // namespace

extern const ActivationKernels activation = {
    .gelu = {&gelu_range<float>, &gelu_range<BFloat16>, &gelu_range<Half>},
    .gelu_backward = {&gelu_backward_range<float>, &gelu_backward_range<BFloat16>, &gelu_backward_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
