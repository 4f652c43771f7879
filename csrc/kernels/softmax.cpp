#include "kernels/softmax.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// Sum of e^(x - max) over a row.
CANN_INLINE double sum_of_exponentials(const float* x, int64_t n, float max) {
  const Vec largest = broadcast(max);
  return sum_over(
      n, [=](auto read) __attribute__((always_inline)) { return exp_nonpositive(read(x) - largest); });
}

void softmax_rows(float* y, const float* x, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const Vec largest = broadcast(max_of_exponents(x, n));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(y, exp_nonpositive(read(x) - largest)); });
    const double sum = sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(y); });
    const Vec scale = broadcast((float)(1.0 / sum));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(y, read(y) * scale); });
  }
}

void log_softmax_rows(float* y, const float* x, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const float max = max_of_exponents(x, n);
    const Vec largest = broadcast(max), log_sum = broadcast((float)__builtin_log(sum_of_exponentials(x, n, max)));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(y, (read(x) - largest) - log_sum); });
  }
}

void softmax_backward_rows(float* dx, const float* dy, const float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, dx += n, dy += n, y += n) {
    const Vec sum = broadcast((float)sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(dy) * read(y); }));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(dx, (read(dy) - sum) * read(y)); });
  }
}

void log_softmax_backward_rows(float* dx, const float* dy, const float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, dx += n, dy += n, y += n) {
    const Vec sum = broadcast((float)sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(dy); }));
    for_each_vector(
        n, [=](auto read, auto write)
               __attribute__((always_inline)) { write(dx, read(dy) - exp_nonpositive(read(y)) * sum); });
  }
}

}  // namespace

extern const SoftmaxKernels softmax = {
    .softmax = &softmax_rows,
    .log_softmax = &log_softmax_rows,
    .softmax_backward = &softmax_backward_rows,
    .log_softmax_backward = &log_softmax_backward_rows,
};

}  // namespace cann::kernels::CANN_KERNEL_SET
