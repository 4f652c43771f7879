#include "kernels/normalization.h"

#include "kernels/rows.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

double mean_of(const float* x, int64_t n) {
  return sum_over(
             n, [=](auto read) __attribute__((always_inline)) { return read(x); }) /
         (double)n;
}

double squares_about(const float* x, int64_t n, float mean) {
  const Vec center = broadcast(mean);
  return sum_over(
      n, [=](auto read) __attribute__((always_inline)) {
        const Vec d = read(x) - center;
        return d * d;
      });
}

void layer_norm_rows(float* y, float* mean, float* rstd, const float* x, const LayerNorm& norm, int64_t rows) {
  const int64_t n = norm.columns;
  const float *weight = norm.weight, *bias = norm.bias;
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const float m = norm.centered ? (float)mean_of(x, n) : 0.0f;
    const float r = (float)(1.0 / __builtin_sqrt(squares_about(x, n, m) / (double)n + norm.eps));
    if (norm.centered) mean[row] = m;
    rstd[row] = r;
    const Vec center = broadcast(m), scale = broadcast(r);
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          Vec v = (read(x) - center) * scale;
          if (weight != nullptr) v = v * read(weight);
          if (bias != nullptr) v = v + read(bias);
          write(y, v);
        });
  }
}

void layer_norm_backward_rows(float* dx, const float* dy, const float* x, const float* mean, const float* rstd,
                              const LayerNorm& norm, int64_t rows) {
  const int64_t n = norm.columns;
  const float* weight = norm.weight;
  for (int64_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const Vec center = broadcast(norm.centered ? mean[row] : 0.0f), scale = broadcast(rstd[row]);
    const auto weighted = [=](auto read) __attribute__((always_inline)) {
      const Vec g = read(dy);
      return weight != nullptr ? g * read(weight) : g;
    };
    const Vec average = norm.centered ? broadcast((float)(sum_over(n, weighted) / (double)n)) : Vec{};
    const Vec slope = broadcast((float)(sum_over(
                                            n, [=
    ](auto read) __attribute__((always_inline)) { return weighted(read) * ((read(x) - center) * scale); }) /
                                        (double)n));
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const Vec normal = (read(x) - center) * scale;
          write(dx, (weighted(read) - average - normal * slope) * scale);
        });
  }
}

constexpr int64_t kRowsPerSum = 32;  // sums of sums: a single one of thousands of rows would lose digits

void layer_norm_columns_range(float* dweight, float* dbias, const float* dy, const float* x, const float* mean,
                              const float* rstd, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t count = end - i < kLanes ? end - i : kLanes;
    const auto read = [=](const float* p) __attribute__((always_inline)) {
      return count == kLanes ? load(p) : load_some(p, count);
    };
    Vec weight_sum = {}, bias_sum = {};
    for (int64_t first = 0; first < rows; first += kRowsPerSum) {
      const int64_t last = first + kRowsPerSum < rows ? first + kRowsPerSum : rows;
      Vec weight_part = {}, bias_part = {};
      for (int64_t row = first; row < last; ++row) {
        const Vec g = read(dy + row * columns + i);
        const Vec center = broadcast(mean != nullptr ? mean[row] : 0.0f);
        weight_part = fma(g, (read(x + row * columns + i) - center) * broadcast(rstd[row]), weight_part);
        bias_part += g;
      }
      weight_sum += weight_part;
      bias_sum += bias_part;
    }
    const auto write = [=](float* p, Vec v) __attribute__((always_inline)) {
      count == kLanes ? store(p, v) : store_some(p, v, count);
    };
    if (dweight != nullptr) write(dweight + i, weight_sum);
    if (dbias != nullptr) write(dbias + i, bias_sum);
  }
}

void channel_moments_of(const float* x, const Channel& c, float& mean, float& variance) {
  const double count = (double)(c.planes * c.size);
  double sum = 0;
  for (int64_t p = 0; p < c.planes; ++p) {
    sum += sum_over(
        c.size, [=](auto read) __attribute__((always_inline)) { return read(x + p * c.stride); });
  }
  mean = (float)(sum / count);
  double squares = 0;
  for (int64_t p = 0; p < c.planes; ++p) squares += squares_about(x + p * c.stride, c.size, mean);
  variance = (float)(squares / count);
}

void channel_affine_of(float* y, const float* x, const Channel& c, float scale, float shift) {
  const Vec a = broadcast(scale), b = broadcast(shift);
  for (int64_t p = 0; p < c.planes; ++p) {
    for_each_vector(
        c.size, [ =, from = x + p * c.stride, to = y + p * c.stride ](auto read, auto write)
                    __attribute__((always_inline)) { write(to, fma(read(from), a, b)); });
  }
}

void channel_gradient_sums_of(const float* dy, const float* x, const Channel& c, float mean, double& sum,
                              double& product) {
  const Vec center = broadcast(mean);
  sum = 0, product = 0;
  for (int64_t p = 0; p < c.planes; ++p) {
    const float *g = dy + p * c.stride, *v = x + p * c.stride;
    sum += sum_over(
        c.size, [=](auto read) __attribute__((always_inline)) { return read(g); });
    product += sum_over(
        c.size, [=](auto read) __attribute__((always_inline)) { return read(g) * (read(v) - center); });
  }
}

void channel_backward_of(float* dx, const float* dy, const float* x, const Channel& c, float mean, float dy_mean,
                         float slope, float scale) {
  const Vec center = broadcast(mean), average = broadcast(dy_mean), k = broadcast(slope), s = broadcast(scale);
  for (int64_t p = 0; p < c.planes; ++p) {
    for_each_vector(
        c.size, [ =, to = dx + p * c.stride, g = dy + p * c.stride, v = x + p * c.stride ](auto read, auto write)
                    __attribute__((always_inline)) { write(to, (read(g) - average - (read(v) - center) * k) * s); });
  }
}

}  // namespace

extern const NormalizationKernels normalization = {
    .layer_norm = &layer_norm_rows,
    .layer_norm_backward = &layer_norm_backward_rows,
    .layer_norm_columns = &layer_norm_columns_range,
    .channel_moments = &channel_moments_of,
    .channel_affine = &channel_affine_of,
    .channel_gradient_sums = &channel_gradient_sums_of,
    .channel_backward = &channel_backward_of,
};

}  // namespace cann::kernels::CANN_KERNEL_SET
