// Kernels of optimizers and gradients against their definitions in double.

#include "kernels_fixture.h"

namespace cann::kernels {
namespace {

using ListsTest = KernelTest;

TEST_P(ListsTest, AdamTakesOneStep) {
  for (const bool amsgrad : {false, true}) {
    for (const int64_t n : kSizes) {
      std::vector<float> p = normal(n, 1), g = normal(n, 2), m = normal(n, 3), v = normal(n, 4), top = normal(n, 5);
      for (float& value : v) value = std::abs(value);
      for (float& value : top) value = std::abs(value);
      const auto p0 = p, g0 = g, m0 = m, v0 = v, top0 = top;
      const AdamStep step{.grad_scale = 2.0f,
                          .maximize = true,
                          .decay = 0.9f,
                          .l2 = 0.1f,
                          .one_minus_beta1 = 0.1f,
                          .beta2 = 0.99f,
                          .one_minus_beta2 = 0.01f,
                          .bias_correction2_sqrt = 0.5f,
                          .eps = 1e-3f,
                          .step_size = -0.2f};
      set_->optimizer->adam[0](p.data(), g.data(), m.data(), v.data(), amsgrad ? top.data() : nullptr, step, n);
      for (int64_t i = 0; i < n; ++i) {
        const double parameter = p0[i] * 0.9, gradient = -g0[i] / 2.0 + 0.1 * parameter;
        const double mean = m0[i] + 0.1 * (gradient - m0[i]), square = 0.99 * v0[i] + 0.01 * gradient * gradient;
        const double denominator = std::sqrt(amsgrad ? std::max<double>(top0[i], square) : square) / 0.5 + 1e-3;
        ASSERT_NEAR(g[i], g0[i] / 2.0, 1e-6);
        ASSERT_NEAR(m[i], mean, 1e-6);
        ASSERT_NEAR(v[i], square, 1e-6);
        ASSERT_NEAR(p[i], parameter - 0.2 * mean / denominator, 1e-4 * std::max(1.0, std::abs(mean / denominator)));
      }
    }
  }
}

TEST_P(ListsTest, SgdTakesOneStep) {
  for (const bool first : {false, true}) {
    for (const bool nesterov : {false, true}) {
      for (const int64_t n : kSizes) {
        std::vector<float> p = normal(n, 1), g = normal(n, 2), b = normal(n, 3);
        const auto p0 = p, g0 = g, b0 = b;
        const SgdStep step{.l2 = 0.1f,
                           .momentum = 0.9f,
                           .one_minus_dampening = 0.5f,
                           .nesterov = nesterov,
                           .first = first,
                           .lr = 0.2f};
        set_->optimizer->sgd[0](p.data(), g.data(), b.data(), step, n);
        for (int64_t i = 0; i < n; ++i) {
          const double gradient = g0[i] + 0.1 * p0[i], buffer = first ? gradient : 0.9 * b0[i] + 0.5 * gradient;
          ASSERT_EQ(g[i], g0[i]);
          ASSERT_NEAR(b[i], buffer, 1e-6);
          ASSERT_NEAR(p[i], p0[i] - 0.2 * (nesterov ? gradient + 0.9 * buffer : buffer), 2e-6);
        }
      }
    }
  }
}

TEST_P(ListsTest, SumOfSquaresOfManyElements) {
  for (const int64_t n : {int64_t{0}, int64_t{5}, int64_t{4096}, int64_t{4097}, int64_t{100003}}) {
    const std::vector<float> x = normal(n, 1);
    double want = 0;
    for (const float value : x) want += static_cast<double>(value) * value;
    EXPECT_NEAR(set_->gradients->sum_of_squares[0](x.data(), n), want, 1e-6 * want);
  }
}

TEST_P(ListsTest, UnscaleFindsOneBadElementAnywhere) {
  for (const int64_t n : {int64_t{1}, int64_t{16}, int64_t{50}}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (int64_t position = 0; position < n; ++position) {
        std::vector<float> x(n, 2.0f);
        ASSERT_FALSE(set_->gradients->unscale[0](x.data(), 0.5f, n));
        ASSERT_EQ(x[position], 1.0f);
        x[position] = bad;
        ASSERT_TRUE(set_->gradients->unscale[0](x.data(), 0.5f, n)) << position << " of " << n;
      }
    }
  }
}

CANN_FOR_EACH_CAPABILITY(ListsTest);

}  // namespace
}  // namespace cann::kernels
