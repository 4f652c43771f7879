#include "kernels/normalization.h"

#include "kernels/rows.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

template <class T>
double mean_of(const T* x, int64_t n) {
  return sum_over(
             n, [=](auto read) __attribute__((always_inline)) { return read(x); }) /
         (double)n;
}

template <class T>
double squares_about(const T* x, int64_t n, float mean) {
  const Vec center = broadcast(mean);
  return sum_over(
      n, [=](auto read) __attribute__((always_inline)) {
        const Vec d = read(x) - center;
        return d * d;
      });
}

// Moments of kRows rows from x on, row `row` of the results. As mean_of() and squares_about() have them.
template <class T, int kRows>
CANN_INLINE void layer_norm_group(T* y, float* mean, float* rstd, const T* x, const LayerNorm& norm, int64_t row) {
  const int64_t n = norm.columns;
  const float *weight = norm.weight, *bias = norm.bias;
  double sum[kRows] = {}, squares[kRows];
  Vec center[kRows];
  if (norm.centered) {
    sums_writing<kRows>(
        n, sum, [=](auto read, auto, int r) __attribute__((always_inline)) { return read(x + r * n); });
  }
  for (int r = 0; r < kRows; ++r) {
    const float m = (float)(sum[r] / (double)n);
    if (norm.centered) mean[row + r] = m;
    center[r] = broadcast(m);
  }
  sums_writing<kRows>(
      n, squares, [&](auto read, auto, int r) __attribute__((always_inline)) {
        const Vec d = read(x + r * n) - center[r];
        return d * d;
      });
  for (int r = 0; r < kRows; ++r) rstd[row + r] = (float)(1.0 / __builtin_sqrt(squares[r] / (double)n + norm.eps));
  for (int r = 0; r < kRows; ++r, x += n, y += n) {
    const Vec c = center[r], scale = broadcast(rstd[row + r]);
    write_row(
        y, n, norm.past_caches, [=](auto read) __attribute__((always_inline)) {
          Vec v = (read(x) - c) * scale;
          if (weight != nullptr) v = v * read(weight);
          return bias != nullptr ? v + read(bias) : v;
        });
  }
}

template <class T>
void layer_norm_rows(void* y_, float* mean, float* rstd, const void* x_, const LayerNorm& norm, int64_t rows) {
  // As many rows as there are registers for their sums, as long as they stay in the first cache between the passes.
  constexpr int kGroup = kLanes == 16 ? 4 : 2;
  constexpr int64_t kMostBytes = 16 << 10;
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  const int64_t n = norm.columns;
  int64_t row = 0;
  if (kGroup * n * (int64_t)sizeof(T) <= kMostBytes) {
    for (; row + kGroup <= rows; row += kGroup) {
      layer_norm_group<T, kGroup>(y + row * n, mean, rstd, x + row * n, norm, row);
    }
  }
  for (; row < rows; ++row) layer_norm_group<T, 1>(y + row * n, mean, rstd, x + row * n, norm, row);
  if (norm.past_caches) finish_streaming();
}

template <class T, int kRows>
CANN_INLINE void add_up_rows(const LayerNormGradients& to, const T* dy, const T* x, const LayerNorm& norm,
                             const Vec (&center)[kRows], const Vec (&scale)[kRows], Vec (&sum)[kRows],
                             Vec (&product)[kRows]) {
  const int64_t n = norm.columns;
  const float* weight = norm.weight;
  float *dweight = to.dweight, *dbias = to.dbias;
  for_each_vector(
      n, [&](auto read, auto write) __attribute__((always_inline)) {
        const Vec w = weight != nullptr ? read(weight) : broadcast(1.0f);
        Vec dw = dweight != nullptr ? read(dweight) : Vec{}, db = dbias != nullptr ? read(dbias) : Vec{};
        for (int r = 0; r < kRows; ++r) {
          const Vec g = read(dy + r * n), h = (read(x + r * n) - center[r]) * scale[r], gw = g * w;
          dw = fma(g, h, dw);
          db += g;
          sum[r] += gw;
          product[r] = fma(gw, h, product[r]);
        }
        if (dweight != nullptr) write(dweight, dw);
        if (dbias != nullptr) write(dbias, db);
      });
}

template <class T, int kRows>
CANN_INLINE void layer_norm_backward_group(const LayerNormGradients& to, const T* dy, const T* x, const float* mean,
                                           const float* rstd, const LayerNorm& norm, int64_t row) {
  const int64_t n = norm.columns;
  const float* weight = norm.weight;
  Vec center[kRows], scale[kRows], sum[kRows] = {}, product[kRows] = {};
  for (int r = 0; r < kRows; ++r) {
    center[r] = broadcast(norm.centered ? mean[row + r] : 0.0f);
    scale[r] = broadcast(rstd[row + r]);
  }
  add_up_rows<T, kRows>(to, dy, x, norm, center, scale, sum, product);
  if (to.dx == nullptr) return;
  for (int r = 0; r < kRows; ++r, dy += n, x += n) {
    T* dx = static_cast<T*>(to.dx) + r * n;
    const Vec c = center[r], s = scale[r], slope = broadcast(-sum_lanes(product[r]) / (float)n),
              average = norm.centered ? broadcast(sum_lanes(sum[r]) / (float)n) : Vec{};
    write_row(
        dx, n, norm.past_caches, [=](auto read) __attribute__((always_inline)) {
          const Vec g = weight != nullptr ? read(dy) * read(weight) : read(dy);
          return fma((read(x) - c) * s, slope, g - average) * s;
        });
  }
}

template <class T>
void layer_norm_backward_rows(const LayerNormGradients& gradients, const void* dy_, const void* x_, const float* mean,
                              const float* rstd, const LayerNorm& norm, int64_t rows) {
  constexpr int kGroup = 4;
  LayerNormGradients to = gradients;
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  const auto advance = [&](int64_t by) {
    if (to.dx != nullptr) to.dx = static_cast<T*>(to.dx) + by * norm.columns;
    dy += by * norm.columns, x += by * norm.columns;
  };
  int64_t row = 0;
  for (; row + kGroup <= rows; row += kGroup, advance(kGroup)) {
    layer_norm_backward_group<T, kGroup>(to, dy, x, mean, rstd, norm, row);
  }
  for (; row < rows; ++row, advance(1)) layer_norm_backward_group<T, 1>(to, dy, x, mean, rstd, norm, row);
  if (norm.past_caches) finish_streaming();
}

void sum_of_parts_range(float* sum, const float* parts, int64_t count, int64_t stride, int64_t n) {
  for_each_vector(
      n, [=](auto read, auto write) __attribute__((always_inline)) {
        Vec total = {};
        for (int64_t part = 0; part < count; ++part) total += read(parts + part * stride);
        write(sum, total);
      });
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
    .layer_norm = {&layer_norm_rows<float>, &layer_norm_rows<BFloat16>, &layer_norm_rows<Half>},
    .layer_norm_backward = {&layer_norm_backward_rows<float>, &layer_norm_backward_rows<BFloat16>,
                            &layer_norm_backward_rows<Half>},
    .sum_of_parts = &sum_of_parts_range,
    .channel_moments = &channel_moments_of,
    .channel_affine = &channel_affine_of,
    .channel_gradient_sums = &channel_gradient_sums_of,
    .channel_backward = &channel_backward_of,
};

}  // namespace cann::kernels::CANN_KERNEL_SET
