#include "kernels/cross_entropy.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// Sum of w_c (x_c - center), w all ones without weights.
template <class T>
CANN_INLINE double weighted_sum(const T* x, const float* weight, int64_t n, float center) {
  const Vec c = broadcast(center);
  if (weight == nullptr) {
    return sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return read(x) - c; });
  }
  return sum_over(
      n, [=](auto read) __attribute__((always_inline)) { return read(weight) * (read(x) - c); });
}

template <class T>
void forward_rows(float* loss, float* statistics, const void* logits, const int64_t* target, const CrossEntropy& terms,
                  int64_t rows) {
  const int64_t n = terms.columns;
  const T* x = static_cast<const T*>(logits);
  for (int64_t row = 0; row < rows; ++row, x += n) {
    const int64_t t = target[row];
    if (t == terms.ignore_index) {
      loss[row] = statistics[2 * row] = statistics[2 * row + 1] = 0.0f;
      continue;
    }
    const float max = max_of_exponents(x, n);
    const Vec largest = broadcast(max);
    const double log_of_sum = __builtin_log(sum_over(
        n, [=](auto read) __attribute__((always_inline)) { return exp_nonpositive(read(x) - largest); }));
    statistics[2 * row] = max;
    statistics[2 * row + 1] = (float)log_of_sum;
    const double weight = terms.weight == nullptr ? 1.0 : (double)terms.weight[t];
    const double of_class = weight * (log_of_sum - ((double)scalar_of(x[t]) - (double)max));
    double result = (1.0 - terms.label_smoothing) * of_class;
    if (terms.label_smoothing != 0.0) {
      const double of_all = terms.weight_sum * log_of_sum - weighted_sum(x, terms.weight, n, max);
      result += terms.label_smoothing / (double)n * of_all;
    }
    loss[row] = (float)result;
  }
}

template <class T>
void backward_rows(void* grad, const void* logits, const float* statistics, const float* grad_loss, int64_t grad_stride,
                   const int64_t* target, const CrossEntropy& terms, int64_t rows) {
  const int64_t n = terms.columns;
  const T* x = static_cast<const T*>(logits);
  T* dx = static_cast<T*>(grad);
  const float* weight = terms.weight;
  const double of_each = terms.label_smoothing / (double)n;
  for (int64_t row = 0; row < rows; ++row, x += n, dx += n) {
    const int64_t t = target[row];
    if (t == terms.ignore_index) {
      memset(dx, 0, n * sizeof(T));
      continue;
    }
    const double of_class = (1.0 - terms.label_smoothing) * (weight == nullptr ? 1.0 : (double)weight[t]);
    const double g = (double)grad_loss[row * grad_stride];
    // d/dx_c of w (lse - x_t): w p_c, less w where c is t.
    const float p_factor = (float)(g * (of_class + of_each * terms.weight_sum));
    const float max = statistics[2 * row], log_sum = statistics[2 * row + 1];
    const Vec largest = broadcast(max), log_of_sum = broadcast(log_sum), factor = broadcast(p_factor),
              rest = broadcast((float)(g * of_each));
    const auto smoothed = [=](auto read, Vec p) __attribute__((always_inline)) {
      return weight == nullptr ? p * factor - rest : p * factor - rest * read(weight);
    };
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const Vec p = exp_nonpositive((read(x) - largest) - log_of_sum);
          write(dx, of_each == 0.0 ? p * factor : smoothed(read, p));
        });
    const double p = __builtin_exp((double)scalar_of(x[t]) - (double)max - (double)log_sum);
    const double others = of_each * (weight == nullptr ? 1.0 : (double)weight[t]);
    dx[t] = scalar_as<T>((float)(g * (p * (of_class + of_each * terms.weight_sum) - of_class - others)));
  }
}

}  // namespace

extern const CrossEntropyKernels cross_entropy = {
    .forward = {&forward_rows<float>, &forward_rows<BFloat16>, &forward_rows<Half>},
    .backward = {&backward_rows<float>, &backward_rows<BFloat16>, &backward_rows<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
