// Kernels of layers against the same definition in double, for every instruction set and tail length.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "kernels_fixture.h"

namespace cann::kernels {
namespace {

using LayersTest = KernelTest;

constexpr double kClose = 2e-6;

// What activation i is at x, and its derivative.
std::pair<double, double> activation(int i, double x) {
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI), probability = 0.5 * std::erfc(-x / std::sqrt(2.0));
  if (i == static_cast<int>(Activation::kGelu)) return {x * probability, probability + x * density};
  const bool is_tanh = i == static_cast<int>(Activation::kGeluTanh);
  const double k = 2 * std::sqrt(2 / M_PI), z = is_tanh ? k * (x + 0.044715 * x * x * x) : x;
  const double s = 1 / (1 + std::exp(-z)), slope = is_tanh ? k * (1 + 3 * 0.044715 * x * x) : 1;
  return {x * s, s + x * s * (1 - s) * slope};
}

TEST_P(LayersTest, Activations) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = normal(n, 1), y(n), dx(n);
    const std::vector<float> dy = normal(n, 2);
    for (float& value : x) value *= 5;
    for (int i = 0; i < kActivations; ++i) {
      set_->activation->forward[i][0](y.data(), x.data(), n, false);
      set_->activation->backward[i][0](dx.data(), dy.data(), x.data(), n, false);
      for (int64_t at = 0; at < n; ++at) {
        const auto [value, slope] = activation(i, x[at]);
        // The factor of x is right to two units of its last place.
        ASSERT_NEAR(y[at], value, 2e-7 * std::max(1.0f, std::abs(x[at]))) << i << ' ' << x[at];
        ASSERT_NEAR(dx[at], dy[at] * slope, 1e-6 * std::max(1.0f, std::abs(dy[at]))) << i << ' ' << x[at];
      }
      std::vector<BFloat16> y16(n), dx16(n);
      const std::vector<BFloat16> x16 = bfloat16(x), dy16 = bfloat16(dy);
      const std::vector<float> wide_x = floats(x16), wide_dy = floats(dy16);
      set_->activation->forward[i][1](y16.data(), x16.data(), n, true);
      set_->activation->forward[i][0](y.data(), wide_x.data(), n, false);
      EXPECT_EQ(floats(y16), floats(bfloat16(y)));
      set_->activation->backward[i][1](dx16.data(), dy16.data(), x16.data(), n, true);
      set_->activation->backward[i][0](dx.data(), wide_dy.data(), wide_x.data(), n, false);
      EXPECT_EQ(floats(dx16), floats(bfloat16(dx)));
    }
  }
}

// Stores past the caches need an aligned result, which vectors do not promise.
TEST_P(LayersTest, ActivationsPastTheCachesAreTheSame) {
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  for (const int64_t n : kSizes) {
    const std::vector<float> values = normal(n, 1);
    std::vector<uint16_t> halves(n);  // whatever 16-bit type these are: numbers between 1 and 2 or near
    for (int64_t i = 0; i < n; ++i) halves[i] = static_cast<uint16_t>(0x3c00 + i % 0x300);
    for (int element = 0; element < kElements; ++element) {
      const size_t bytes = n * (element == 0 ? 4 : 2);
      const void* x = element == 0 ? static_cast<const void*>(values.data()) : halves.data();
      std::vector<Line> cached(bytes / 64 + 1), streamed(bytes / 64 + 1);
      for (int i = 0; i < kActivations; ++i) {
        set_->activation->forward[i][element](cached.data(), x, n, false);
        set_->activation->forward[i][element](streamed.data(), x, n, true);
        EXPECT_EQ(std::memcmp(cached.data(), streamed.data(), bytes), 0) << i << ' ' << element << ' ' << n;
        set_->activation->backward[i][element](cached.data(), x, x, n, false);
        set_->activation->backward[i][element](streamed.data(), x, x, n, true);
        EXPECT_EQ(std::memcmp(cached.data(), streamed.data(), bytes), 0) << i << ' ' << element << ' ' << n;
      }
    }
  }
}

TEST_P(LayersTest, LayerNormForwardAndBackward) {
  constexpr int64_t kRows = 5;  // one more than the backward takes at once
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    const std::vector<float> x = normal(kRows * n, 1), dy = normal(kRows * n, 2), weight = normal(n, 3),
                             bias = normal(n, 4);
    std::vector<float> y(kRows * n), mean(kRows), rstd(kRows), dx(kRows * n), dweight(n), dbias(n);
    const LayerNorm norm{n, weight.data(), bias.data(), 1e-5};
    const NormalizationKernels& kernel = *set_->normalization;
    kernel.layer_norm[0](y.data(), mean.data(), rstd.data(), x.data(), norm, kRows);
    kernel.layer_norm_backward[0]({dx.data(), dweight.data(), dbias.data()}, dy.data(), x.data(), mean.data(),
                                  rstd.data(), norm, kRows);
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

TEST_P(LayersTest, LayerNormOf16BitElementsIsThatOfFloatsRoundedOnce) {
  constexpr int64_t kRows = 5;
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    const std::vector<BFloat16> x = bfloat16(normal(kRows * n, 1)), dy = bfloat16(normal(kRows * n, 2));
    const std::vector<float> wide_x = floats(x), wide_dy = floats(dy), weight = normal(n, 3);
    std::vector<float> mean(kRows), rstd(kRows), y(kRows * n), dx(kRows * n), dweight(n), dbias(n), weight16(n),
        bias16(n);
    std::vector<BFloat16> y16(kRows * n), dx16(kRows * n);
    const LayerNorm norm{n, weight.data(), nullptr, 1e-5};
    const NormalizationKernels& kernel = *set_->normalization;
    kernel.layer_norm[0](y.data(), mean.data(), rstd.data(), wide_x.data(), norm, kRows);
    kernel.layer_norm_backward[0]({dx.data(), dweight.data(), dbias.data()}, wide_dy.data(), wide_x.data(), mean.data(),
                                  rstd.data(), norm, kRows);
    kernel.layer_norm[1](y16.data(), mean.data(), rstd.data(), x.data(), norm, kRows);
    kernel.layer_norm_backward[1]({dx16.data(), weight16.data(), bias16.data()}, dy.data(), x.data(), mean.data(),
                                  rstd.data(), norm, kRows);
    EXPECT_EQ(floats(y16), floats(bfloat16(y))) << n;
    EXPECT_EQ(floats(dx16), floats(bfloat16(dx))) << n;
    EXPECT_EQ(weight16, dweight) << n;
    EXPECT_EQ(bias16, dbias) << n;
  }
}

TEST_P(LayersTest, GradientsOfALayerNormThatAreNotAskedFor) {
  constexpr int64_t kRows = 5, kColumns = 33;
  const std::vector<float> x = normal(kRows * kColumns, 1), rstd = normal(kRows, 2);
  std::vector<float> dx(x.size()), dweight(kColumns), only_dx(x.size()), only_weight(kColumns);
  const LayerNorm rms{kColumns, nullptr, nullptr, 0.0, /*centered=*/false};
  const auto backward = [&](const LayerNormGradients& to) {
    set_->normalization->layer_norm_backward[0](to, x.data(), x.data(), nullptr, rstd.data(), rms, kRows);
  };
  backward({dx.data(), dweight.data(), nullptr});
  backward({only_dx.data(), nullptr, nullptr});
  backward({nullptr, only_weight.data(), nullptr});
  EXPECT_EQ(dx, only_dx);
  EXPECT_EQ(dweight, only_weight);
}

TEST_P(LayersTest, StoresPastTheCachesWriteTheSame) {
  constexpr int64_t kRows = 5;
  for (const int64_t n : {1, 16, 33, 48, 1000}) {
    const std::vector<float> x = normal(kRows * n, 1), dy = normal(kRows * n, 2), mean = normal(kRows, 3),
                             rstd = normal(kRows, 4);
    std::vector<float> of_rows(kRows);
    LayerNorm norm{n, nullptr, nullptr, 1e-5};
    const auto results = [&](bool past_caches) {
      norm.past_caches = past_caches;
      // The allocator aligns to 16 bytes: wide rows are streamed from some offsets only, which changes no value.
      std::vector<std::vector<float>> all(3, std::vector<float>(kRows * n + 16));
      for (int64_t offset = 0; offset < 16; offset += 4) {
        set_->normalization->layer_norm[0](all[0].data() + offset, of_rows.data(), of_rows.data(), x.data(), norm,
                                           kRows);
        set_->normalization->layer_norm_backward[0]({all[1].data() + offset, nullptr, nullptr}, dy.data(), x.data(),
                                                    mean.data(), rstd.data(), norm, kRows);
        set_->softmax->softmax_backward[0](all[2].data() + offset, dy.data(), x.data(), kRows, n, past_caches);
      }
      return all;
    };
    EXPECT_EQ(results(true), results(false)) << n;
  }
}

TEST_P(LayersTest, SumOfParts) {
  constexpr int64_t kStride = 70;
  const std::vector<float> parts = normal(3 * kStride, 1);
  for (const int64_t n : kSizes) {
    if (n > kStride) continue;
    std::vector<float> sum(n + 1, 42.0f);
    set_->normalization->sum_of_parts(sum.data(), parts.data(), 3, kStride, n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], parts[i] + parts[kStride + i] + parts[2 * kStride + i]);
    EXPECT_EQ(sum[n], 42.0f);
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
    set_->softmax->softmax[0](y.data(), x.data(), 2, n);
    set_->softmax->log_softmax[0](log_y.data(), x.data(), 2, n);
    set_->softmax->softmax_backward[0](dx.data(), dy.data(), y.data(), 2, n, false);
    set_->softmax->log_softmax_backward[0](log_dx.data(), dy.data(), log_y.data(), 2, n, false);
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

TEST_P(LayersTest, SoftmaxOf16BitElementsIsThatOfFloatsRoundedOnce) {
  std::vector<int64_t> sizes = kSizes;
  sizes.push_back(5003);  // longer than the exponentials that are kept
  for (const int64_t n : sizes) {
    if (n == 0) continue;
    const std::vector<BFloat16> x = bfloat16(normal(2 * n, 1)), dy = bfloat16(normal(2 * n, 2));
    const std::vector<float> wide_x = floats(x), wide_dy = floats(dy);
    std::vector<float> y(2 * n), dx(2 * n);
    std::vector<BFloat16> y16(2 * n), dx16(2 * n);
    const auto check = [&](const auto& forward, const auto& backward) {
      forward[0](y.data(), wide_x.data(), 2, n);
      forward[1](y16.data(), x.data(), 2, n);
      EXPECT_EQ(floats(y16), floats(bfloat16(y))) << n;
      const std::vector<float> wide_y = floats(y16);
      backward[0](dx.data(), wide_dy.data(), wide_y.data(), 2, n, false);
      backward[1](dx16.data(), dy.data(), y16.data(), 2, n, true);
      EXPECT_EQ(floats(dx16), floats(bfloat16(dx))) << n;
    };
    check(set_->softmax->softmax, set_->softmax->softmax_backward);
    check(set_->softmax->log_softmax, set_->softmax->log_softmax_backward);
  }
}

TEST_P(LayersTest, SwigluForwardAndBackward) {
  for (const int64_t n : kSizes) {
    std::vector<float> gate = normal(n, 1), y(n), dgate(n), dup(n);
    const std::vector<float> up = normal(n, 2), dy = normal(n, 3);
    for (float& value : gate) value *= 20;
    set_->swiglu->forward[0](y.data(), gate.data(), up.data(), n);
    set_->swiglu->backward[0](dgate.data(), dup.data(), dy.data(), gate.data(), up.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double x = gate[i], s = 1 / (1 + std::exp(-x));
      ASSERT_NEAR(y[i], x * s * up[i], 1e-6 * (1 + std::abs(x * up[i])));
      ASSERT_NEAR(dup[i], dy[i] * x * s, 1e-6 * (1 + std::abs(x * dy[i])));
      ASSERT_NEAR(dgate[i], dy[i] * up[i] * s * (1 + x * (1 - s)), 1e-6 * (1 + std::abs(x * dy[i] * up[i])));
    }
    std::vector<BFloat16> y16(n);
    const std::vector<BFloat16> gate16 = bfloat16(gate), up16 = bfloat16(up);
    set_->swiglu->forward[1](y16.data(), gate16.data(), up16.data(), n);
    set_->swiglu->forward[0](y.data(), floats(gate16).data(), floats(up16).data(), n);
    EXPECT_EQ(floats(y16), floats(bfloat16(y)));
  }
}

TEST_P(LayersTest, SwigluAtTheEndsOfTheRange) {
  const std::vector<float> gate{-INFINITY, INFINITY, -200.0f, 200.0f, NAN, 0.0f}, up(6, 1.0f);
  std::vector<float> y(6);
  set_->swiglu->forward[0](y.data(), gate.data(), up.data(), 6);
  EXPECT_TRUE(std::isnan(y[0])) << "as PyTorch's silu, infinity over infinity";
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 200.0f);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 0.0f);
}

// Index of the other element of i's pair, and whether i is the first of it.
std::pair<int64_t, bool> pair_of(int64_t i, int64_t columns, bool interleaved) {
  if (interleaved) return {i ^ 1, i % 2 == 0};
  const int64_t half = columns / 2;
  return {i < half ? i + half : i - half, i < half};
}

TEST_P(LayersTest, RotaryForwardAndBackwardInBothOrders) {
  constexpr int64_t kRows = 3;
  for (const int64_t half : kSizes) {
    const int64_t n = 2 * half, stride = n + 3;  // rows of x with a gap between them
    if (n == 0) continue;
    const std::vector<float> x = normal(kRows * stride, 1), dy = normal(kRows * n, 2), cos = normal(kRows * n, 3),
                             sin = normal(kRows * n, 4);
    for (const bool interleaved : {false, true}) {
      std::vector<float> y(kRows * n), dx(kRows * n), dcos(n), dsin(n);
      const RotaryRows each{.rows = kRows, .columns = n, .x_stride = stride, .y_stride = n, .table_stride = n};
      set_->rotary->forward[interleaved][0](y.data(), x.data(), cos.data(), sin.data(), each);
      const RotaryRows shared{
          .rows = kRows, .columns = n, .x_stride = stride, .y_stride = n, .table_stride = 0, .dy_stride = n};
      set_->rotary->backward[interleaved][0](dx.data(), dcos.data(), dsin.data(), dy.data(), x.data(), cos.data(),
                                             sin.data(), shared);
      std::vector<double> want_dcos(n), want_dsin(n);
      for (int64_t row = 0; row < kRows; ++row) {
        const float *xr = &x[row * stride], *g = &dy[row * n], *c = &cos[row * n], *s = &sin[row * n];
        for (int64_t i = 0; i < n; ++i) {
          const auto [other, first] = pair_of(i, n, interleaved);
          const double turned = first ? -xr[other] : xr[other], back = first ? g[other] : -g[other];
          ASSERT_NEAR(y[row * n + i], static_cast<double>(xr[i]) * c[i] + turned * s[i], 1e-5);
          ASSERT_NEAR(dx[row * n + i], static_cast<double>(g[i]) * cos[i] + back * sin[other], 1e-5);
          want_dcos[i] += static_cast<double>(g[i]) * xr[i];
          want_dsin[i] += g[i] * turned;
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(dcos[i], want_dcos[i], 1e-5);
        ASSERT_NEAR(dsin[i], want_dsin[i], 1e-5);
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
