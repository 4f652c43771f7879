#include "kernels/softmax.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// Exponentials of a row of 16-bit elements are kept up to this length, since rounding them before the division would
// lose digits; longer rows compute them twice.
constexpr int64_t kKeptExponentials = 4096;

// Sum of e^(x - max) over a row; the exponentials go to `kept` unless it is nullptr.
template <class T>
CANN_INLINE double sum_of_exponentials(const T* x, int64_t n, float max, float* kept) {
  const Vec largest = broadcast(max);
  return sum_writing(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec e = exp_nonpositive(read(x) - largest);
        if (kept != nullptr) write(kept, e);
        return e;
      });
}

template <class T>
void softmax_rows(void* y_, const void* x_, int64_t rows, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  float buffer[sizeof(T) == sizeof(float) ? 1 : kKeptExponentials];
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    float* kept = n <= kKeptExponentials ? buffer : nullptr;
    if constexpr (sizeof(T) == sizeof(float)) kept = y;
    const float max = max_of_exponents(x, n);
    const Vec largest = broadcast(max), scale = broadcast((float)(1.0 / sum_of_exponentials(x, n, max, kept)));
    if (kept != nullptr) {
      for_each_vector(
          n, [=](auto read, auto write) __attribute__((always_inline)) { write(y, read(kept) * scale); });
    } else {
      for_each_vector(
          n, [=](auto read, auto write)
                 __attribute__((always_inline)) { write(y, exp_nonpositive(read(x) - largest) * scale); });
    }
  }
}

template <class T>
void log_softmax_rows(void* y_, const void* x_, int64_t rows, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const float max = max_of_exponents(x, n);
    const double sum = sum_of_exponentials(x, n, max, /*kept=*/nullptr);
    const Vec largest = broadcast(max), log_sum = broadcast((float)__builtin_log(sum));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(y, (read(x) - largest) - log_sum); });
  }
}

template <class T>
void softmax_backward_rows(void* dx_, const void* dy_, const void* y_, int64_t rows, int64_t n, bool past_caches) {
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *y = static_cast<const T*>(y_);
  for (int64_t row = 0; row < rows; ++row, dx += n, dy += n, y += n) {
    const Vec sum = broadcast((float)sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(dy) * read(y); }));
    write_row(
        dx, n, past_caches, [=](auto read) __attribute__((always_inline)) { return (read(dy) - sum) * read(y); });
  }
  if (past_caches) finish_streaming();
}

template <class T>
void log_softmax_backward_rows(void* dx_, const void* dy_, const void* y_, int64_t rows, int64_t n, bool past_caches) {
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *y = static_cast<const T*>(y_);
  for (int64_t row = 0; row < rows; ++row, dx += n, dy += n, y += n) {
    const Vec sum = broadcast((float)sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(dy); }));
    write_row(
        dx, n, past_caches, [=](auto read) __attribute__((always_inline)) {
          return read(dy) - exp_nonpositive(read(y)) * sum;
        });
  }
  if (past_caches) finish_streaming();
}

}  // namespace

extern const SoftmaxKernels softmax = {
    .softmax = {&softmax_rows<float>, &softmax_rows<BFloat16>, &softmax_rows<Half>},
    .log_softmax = {&log_softmax_rows<float>, &log_softmax_rows<BFloat16>, &log_softmax_rows<Half>},
    .softmax_backward = {&softmax_backward_rows<float>, &softmax_backward_rows<BFloat16>, &softmax_backward_rows<Half>},
    .log_softmax_backward = {&log_softmax_backward_rows<float>, &log_softmax_backward_rows<BFloat16>,
                             &log_softmax_backward_rows<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
