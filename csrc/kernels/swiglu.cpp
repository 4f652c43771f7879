#include "kernels/swiglu.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

template <class T>
void swiglu_range(void* y_, const void* gate_, const void* up_, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T *gate = static_cast<const T*>(gate_), *up = static_cast<const T*>(up_);
  for_each_vector(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec x = read(gate);
        write(y, x * sigmoid(x).value * read(up));
      });
}

template <class T>
void swiglu_backward_range(void* dgate_, void* dup_, const void* dy_, const void* gate_, const void* up_, int64_t n) {
  T *dgate = static_cast<T*>(dgate_), *dup = static_cast<T*>(dup_);
  const T *dy = static_cast<const T*>(dy_), *gate = static_cast<const T*>(gate_), *up = static_cast<const T*>(up_);
  for_each_vector(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec x = read(gate), g = read(dy);
        const Sigmoid s = sigmoid(x);
        write(dgate, g * read(up) * fma(x, s.slope, s.value));
        write(dup, g * (x * s.value));
      });
}

}  // namespace

extern const SwigluKernels swiglu = {
    .forward = {&swiglu_range<float>, &swiglu_range<BFloat16>, &swiglu_range<Half>},
    .backward = {&swiglu_backward_range<float>, &swiglu_backward_range<BFloat16>, &swiglu_backward_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
