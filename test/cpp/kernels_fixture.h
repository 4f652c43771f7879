#pragma once
// What the tests of kernels share: each test runs for every instruction set that this CPU has.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace cann::kernels {

class KernelTest : public ::testing::TestWithParam<sim::CpuCapability> {
 protected:
  void SetUp() override {
    set_ = kernels_for(GetParam());
    if (set_ == nullptr) GTEST_SKIP() << "this CPU has no " << name_of(GetParam());
  }

  // `n` normal deviates; the same for the same seed.
  static std::vector<float> normal(int64_t n, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> distribution;
    std::vector<float> values(n);
    for (float& value : values) value = distribution(engine);
    return values;
  }

  // The values as 16-bit elements, and back; the kernels that do it have tests of their own.
  std::vector<BFloat16> bfloat16(const std::vector<float>& values) const {
    std::vector<BFloat16> result(values.size());
    set_->conversion->to_bfloat16(values.data(), result.data(), static_cast<int64_t>(values.size()), 1.0f);
    return result;
  }
  std::vector<float> floats(const std::vector<BFloat16>& values) const {
    std::vector<float> result(values.size());
    set_->conversion->from_bfloat16(values.data(), result.data(), static_cast<int64_t>(values.size()), 1.0f);
    return result;
  }

  const Kernels* set_ = nullptr;
};

// Sizes round the vector widths, so that loops over whole vectors and their tails both run.
inline const std::vector<int64_t> kSizes{0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1000};

#define CANN_FOR_EACH_CAPABILITY(suite)                                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                                                     \
      All, suite,                                                                                               \
      ::testing::Values(sim::CpuCapability::kBaseline, sim::CpuCapability::kAvx2, sim::CpuCapability::kAvx512), \
      [](const auto& info) { return std::string(name_of(info.param)); })

}  // namespace cann::kernels
