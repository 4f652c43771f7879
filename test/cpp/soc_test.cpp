// The SoC table against published figures and against itself.

#include "sim/soc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

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

TEST(Soc, AFileMayChangeAndAddChips) {
  std::vector<Soc> table(soc_table().begin(), soc_table().end());
  read_soc_table("[Ascend910B2]\nhbm_gbps = 1700 # measured\n[Mine]\nbase = \"Ascend910B2\"\ncube_mhz = 900\n",
                 "mine.toml", table);
  const auto find = [&](std::string_view name) { return *std::ranges::find(table, name, &Soc::name); };
  EXPECT_EQ(find("Ascend910B2").hbm_gbps, 1700);
  EXPECT_EQ(find("Mine").hbm_gbps, 1700);
  EXPECT_DOUBLE_EQ(find("Mine").peak_fp16_tflops, find("Ascend910B2").peak_fp16_tflops / 2);
}

TEST(Soc, AMalformedFileIsRefusedWithItsLine) {
  const auto message = [](const char* text) -> std::string {
    std::vector<Soc> table;
    try {
      read_soc_table(text, "bad.toml", table);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("[A]\nfrobs = 3\n").find("bad.toml:2: there is no figure \"frobs\""), std::string::npos);
  EXPECT_NE(message("[A]\nbase = \"B\"\n").find("bad.toml:2: base names no chip"), std::string::npos);
  EXPECT_NE(message("[A]\nhbm_gbps = fast\n").find("bad.toml:2:"), std::string::npos);
  EXPECT_NE(message("[A]\nhbm_gbps = 0\n").find("must be a positive number"), std::string::npos);
  EXPECT_NE(message("[A]\nhbm_gbps = 5\n").find("lacks figures"), std::string::npos);
  EXPECT_NE(message("x = 1\n").find("bad.toml:1:"), std::string::npos);
}

}  // namespace
}  // namespace cann::sim
