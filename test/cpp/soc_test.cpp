// The SoC table against published figures and against itself.

#include "sim/soc.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(Soc, DefaultChip) {
  const Soc& soc = find_soc("Ascend910B2");
  EXPECT_EQ(soc.version, 221);
  EXPECT_EQ(soc.cube_cores, 24);
  EXPECT_EQ(soc.vector_cores, 48);
  EXPECT_EQ(soc.l2_bytes, 192 * kMiB);
  EXPECT_EQ(soc.usable_hbm_bytes, 62420 * kMiB);
  EXPECT_NEAR(static_cast<double>(soc.usable_hbm_bytes) / (1 << 30), 60.96, 0.005);
}

TEST(Soc, PeakFollowsFromClockAndCores) {
  // Product of the vendor's configuration files' figures, rounded as published.
  EXPECT_NEAR(find_soc("Ascend910A").peak_fp16_tflops, 262.1, 0.05);
  EXPECT_NEAR(find_soc("Ascend910B1").peak_fp16_tflops, 363.7, 0.05);
  EXPECT_NEAR(find_soc("Ascend910B2").peak_fp16_tflops, 353.9, 0.05);
  EXPECT_NEAR(find_soc("Ascend910B3").peak_fp16_tflops, 294.9, 0.05);
  EXPECT_NEAR(find_soc("Ascend910B4").peak_fp16_tflops, 245.8, 0.05);
  EXPECT_NEAR(find_soc("Ascend910_9392").peak_fp16_tflops, 363.7, 0.05);
  EXPECT_NEAR(find_soc("Ascend310P3").peak_fp16_tflops, 69.5, 0.05);
  EXPECT_NEAR(find_soc("Ascend910_95").peak_fp16_tflops, 432.5, 0.05);
}

TEST(Soc, RowsAreUniqueOrderedAndPlausible) {
  std::set<std::string_view> names;
  int previous_version = 0;
  for (const Soc& soc : soc_table()) {
    EXPECT_TRUE(names.insert(soc.name).second) << soc.name;
    EXPECT_GT(soc.version, previous_version) << soc.name;
    previous_version = soc.version;
    EXPECT_EQ(&find_soc(soc.name), &soc);
    EXPECT_LT(soc.usable_hbm_bytes, soc.hbm_bytes) << soc.name;
    EXPECT_GT(soc.usable_hbm_bytes, soc.hbm_bytes / 10 * 9 - 2048 * kMiB) << soc.name;
    EXPECT_EQ(soc.usable_hbm_bytes % kMiB, 0u) << soc.name;
    EXPECT_GT(soc.hbm_gbps, 100) << soc.name;
    EXPECT_GT(soc.cube_cores, 0) << soc.name;
    EXPECT_GT(soc.vector_cores, 0) << soc.name;
  }
  EXPECT_GE(names.size(), 20u);
}

TEST(Soc, UnknownNameListsTheKnownOnes) {
  try {
    find_soc("Ascend911");
    FAIL() << "found a chip that does not exist";
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"Ascend911\""), std::string::npos);
    for (const Soc& soc : soc_table()) EXPECT_NE(message.find(soc.name), std::string::npos) << soc.name;
  }
}

}  // namespace
}  // namespace cann::sim
