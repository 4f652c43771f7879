// Kernels of layers against the same definition in double, for every instruction set and tail length.

#include <algorithm>
#include <memory>
#include <numeric>

#include "kernels_fixture.h"

namespace cann::kernels {
namespace {

using LayersTest = KernelTest;

constexpr double kClose = 2e-6;

TEST_P(LayersTest, LayerNormForwardAndBackward) {
  constexpr int64_t kRows = 3;
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    const std::vector<float> x = normal(kRows * n, 1), dy = normal(kRows * n, 2), weight = normal(n, 3),
                             bias = normal(n, 4);
    std::vector<float> y(kRows * n), mean(kRows), rstd(kRows), dx(kRows * n), dweight(n), dbias(n);
    const LayerNorm norm{n, weight.data(), bias.data(), 1e-5};
    set_->normalization->layer_norm(y.data(), mean.data(), rstd.data(), x.data(), norm, kRows);
    set_->normalization->layer_norm_backward(dx.data(), dy.data(), x.data(), mean.data(), rstd.data(), norm, kRows);
    set_->normalization->layer_norm_columns(dweight.data(), dbias.data(), dy.data(), x.data(), mean.data(), rstd.data(),
                                            kRows, n, 0, n);
    std::vector<double> want_weight(n), want_bias(n);
    for (int64_t row = 0; row < kRows; ++row) {
      const float *xr = x.data() + row * n, *gr = dy.data() + row * n;
      const double m = std::accumulate(xr, xr + n, 0.0) / n;
      double variance = 0, average = 0, slope = 0;
      for (int64_t i = 0; i < n; ++i) variance += (xr[i] - m) * (xr[i] - m) / n;
      const double r = 1 / std::sqrt(variance + 1e-5);
      for (int64_t i = 0; i < n; ++i) {
        average += static_cast<double>(gr[i]) * weight[i] / n;
        slope += static_cast<double>(gr[i]) * weight[i] * (xr[i] - m) * r / n;
        want_weight[i] += gr[i] * (xr[i] - m) * r;
        want_bias[i] += gr[i];
      }
      for (int64_t i = 0; i < n; ++i) {
        const double hat = (xr[i] - m) * r;
        ASSERT_NEAR(y[row * n + i], hat * weight[i] + bias[i], 1e-5) << n;
        // With few columns rstd is large, and so are the gradient's terms that cancel.
        ASSERT_NEAR(dx[row * n + i], (gr[i] * weight[i] - average - hat * slope) * r, 1e-5 * std::max(1.0, r)) << n;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(dweight[i], want_weight[i], 1e-5);
      ASSERT_NEAR(dbias[i], want_bias[i], 1e-5);
    }
  }
}

TEST_P(LayersTest, ChannelMomentsAndGradients) {
  for (const int64_t size : kSizes) {
    if (size == 0) continue;
    const Channel channel{.planes = 3, .stride = size + 5, .size = size};
    const std::vector<float> x = normal(3 * channel.stride, 1), dy = normal(3 * channel.stride, 2);
    double sum = 0, squares = 0, want_sum = 0, want_product = 0;
    const auto each = [&](auto body) {
      for (int64_t p = 0; p < 3; ++p) {
        for (int64_t i = 0; i < size; ++i) body(p * channel.stride + i);
      }
    };
    each([&](int64_t i) { sum += x[i]; });
    const double mean = sum / static_cast<double>(3 * size);
    each([&](int64_t i) {
      squares += (x[i] - mean) * (x[i] - mean);
      want_sum += dy[i];
      want_product += dy[i] * (x[i] - mean);
    });
    float got_mean = 0, got_variance = 0;
    set_->normalization->channel_moments(x.data(), channel, got_mean, got_variance);
    EXPECT_NEAR(got_mean, mean, kClose);
    EXPECT_NEAR(got_variance, squares / static_cast<double>(3 * size), kClose);
    double got_sum = 0, got_product = 0;
    set_->normalization->channel_gradient_sums(dy.data(), x.data(), channel, got_mean, got_sum, got_product);
    EXPECT_NEAR(got_sum, want_sum, 1e-4);
    EXPECT_NEAR(got_product, want_product, 1e-4);

    std::vector<float> out(x.size(), 42.0f);
    set_->normalization->channel_affine(out.data(), x.data(), channel, 2.0f, 0.5f);
    each([&](int64_t i) { ASSERT_NEAR(out[i], 2.0 * x[i] + 0.5, kClose * 4); });
    EXPECT_EQ(out[size], 42.0f) << "wrote between the planes";
    set_->normalization->channel_backward(out.data(), dy.data(), x.data(), channel, 0.25f, 0.5f, 0.75f, 2.0f);
    each([&](int64_t i) { ASSERT_NEAR(out[i], (dy[i] - 0.5 - (x[i] - 0.25) * 0.75) * 2.0, kClose * 8); });
  }
}

TEST_P(LayersTest, SoftmaxForwardAndBackward) {
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    std::vector<float> x = normal(2 * n, 1), y(2 * n), log_y(2 * n), dx(2 * n), log_dx(2 * n);
    const std::vector<float> dy = normal(2 * n, 2);
    for (float& value : x) value *= 6;
    set_->softmax->softmax(y.data(), x.data(), 2, n);
    set_->softmax->log_softmax(log_y.data(), x.data(), 2, n);
    set_->softmax->softmax_backward(dx.data(), dy.data(), y.data(), 2, n);
    set_->softmax->log_softmax_backward(log_dx.data(), dy.data(), log_y.data(), 2, n);
    for (int64_t row = 0; row < 2; ++row) {
      const float *xr = x.data() + row * n, *gr = dy.data() + row * n;
      const double max = *std::max_element(xr, xr + n);
      double sum = 0, dot = 0, total = 0;
      for (int64_t i = 0; i < n; ++i) sum += std::exp(xr[i] - max);
      for (int64_t i = 0; i < n; ++i) dot += gr[i] * std::exp(xr[i] - max) / sum, total += gr[i];
      for (int64_t i = 0; i < n; ++i) {
        const double p = std::exp(xr[i] - max) / sum;
        ASSERT_NEAR(y[row * n + i], p, 1e-6);
        ASSERT_NEAR(log_y[row * n + i], std::log(p), 1e-5);
        ASSERT_NEAR(dx[row * n + i], (gr[i] - dot) * p, 1e-5);
        ASSERT_NEAR(log_dx[row * n + i], gr[i] - p * total, 1e-4);
      }
    }
  }
}

TEST_P(LayersTest, DropoutDrawsTheSameInPartsAndOnEverySet) {
  constexpr int64_t kCount = 3 * 4096 + 5;
  const Dropout dropout{.key = 0x123456789abcdef0, .keep = 3u << 30, .scale = 4.0f / 3};
  const std::vector<float> x(kCount, 3.0f);
  std::vector<float> y(kCount), part(kCount), dx(kCount);
  const auto mask = std::make_unique<bool[]>(kCount), part_mask = std::make_unique<bool[]>(kCount);
  set_->dropout->forward[0](y.data(), mask.get(), x.data(), dropout, 0, kCount);
  set_->dropout->forward[0](part.data(), part_mask.get(), x.data(), dropout, 0, 4096);
  set_->dropout->forward[0](part.data() + 4096, part_mask.get() + 4096, x.data() + 4096, dropout, 4096, kCount - 4096);
  EXPECT_EQ(y, part);
  kernels_for(sim::CpuCapability::kBaseline)
      ->dropout->forward[0](part.data(), part_mask.get(), x.data(), dropout, 0, kCount);
  set_->dropout->backward[0](dx.data(), x.data(), mask.get(), 2.0f, kCount);
  int64_t kept = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(mask[i], part_mask[i]);
    ASSERT_EQ(y[i], mask[i] ? 4.0f : 0.0f);
    ASSERT_EQ(dx[i], mask[i] ? 6.0f : 0.0f);
    kept += mask[i];
  }
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.75, 0.02);
}

CANN_FOR_EACH_CAPABILITY(LayersTest);

}  // namespace
}  // namespace cann::kernels
