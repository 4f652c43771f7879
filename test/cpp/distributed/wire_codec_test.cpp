// Lossy forms of float32: how near they are, sizes, values that are not finite, error feedback, damaged messages.

#include "distributed/wire_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "distributed/engine.h"

namespace cann::hccl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(size_t count, float scale = 1.0F) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<float> through(const char* format, const std::vector<float>& values, float* residual = nullptr) {
  const WireFormat wire = WireFormat::parse(format);
  std::vector<std::byte> message(encoded_bytes(wire, values.size()));
  encode(wire, values.data(), values.size(), message.data(), residual);
  std::vector<float> result(values.size());
  decode(wire, message.data(), values.size(), result.data());
  return result;
}

TEST(WireCodec, SizesAndNames) {
  EXPECT_EQ(encoded_bytes(WireFormat::parse("exact"), 1000), 4000u);
  EXPECT_EQ(encoded_bytes(WireFormat::parse("fp16"), 1000), 2004u);
  EXPECT_EQ(encoded_bytes(WireFormat::parse("bf16"), 1000), 2000u);
  EXPECT_EQ(encoded_bytes(WireFormat::parse("int8"), 1000), 1016u);
  EXPECT_EQ(encoded_bytes(WireFormat::parse("topk:0.01"), 1000), 80u);
  EXPECT_EQ(encoded_bytes(WireFormat::parse("topk:0.01"), 0), 0u);
  for (const char* name : {"exact", "fp16", "bf16", "int8", "topk:0.25"})
    EXPECT_EQ(WireFormat::parse(name).text(), name);
  for (const char* wrong : {"", "half", "topk", "topk:0", "topk:0.6", "topk:0.1x"}) {
    EXPECT_THROW(WireFormat::parse(wrong), std::invalid_argument) << wrong;
  }
}

TEST(WireCodec, ValuesComeBackNearly) {
  for (const size_t count : {1u, 5u, 16u, 255u, 257u, 1000u}) {
    const auto values = random_values(count);
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    const auto expect = [&](const char* format, float relative, float absolute) {
      const auto result = through(format, values);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(result[i], values[i], std::abs(values[i]) * relative + absolute) << format << count;
      }
    };
    expect("fp16", 1.0F / 2048, 1e-7F);
    expect("bf16", 1.0F / 256, 0.0F);
    expect("int8", 0.0F, largest / 253);
  }
}

TEST(WireCodec, Fp16IsScaledWhereItWouldOverflow) {
  const std::vector<float> values{1e8F, -3e7F, 4096.0F, 0.0F};
  const auto result = through("fp16", values);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(result[i], values[i], std::abs(values[i]) / 1024) << i;
}

TEST(WireCodec, ValuesThatAreNotFiniteAreNotLost) {
  for (const char* format : {"fp16", "bf16"}) {
    const auto result = through(format, {1.0F, kInfinity, kNaN, -kInfinity});
    EXPECT_EQ(result[0], 1.0F);
    EXPECT_EQ(result[1], kInfinity);
    EXPECT_TRUE(std::isnan(result[2]));
    EXPECT_EQ(result[3], -kInfinity);
  }
  std::vector<float> values(600, 1.0F);
  values[300] = kNaN;
  const auto result = through("int8", values);
  EXPECT_EQ(result[0], 1.0F);
  EXPECT_TRUE(std::isnan(result[300]) && std::isnan(result[256]));
  EXPECT_EQ(result[599], 1.0F);
  EXPECT_TRUE(std::isnan(through("topk:0.001", values)[300]));
}

TEST(WireCodec, TinyAndZeroBlocksAreNothing) {
  const std::vector<float> values{0.0F, 1e-42F, -1e-42F};
  EXPECT_EQ(through("int8", values), std::vector<float>(3, 0.0F));
}

TEST(WireCodec, TopKKeepsTheLargest) {
  const auto result = through("topk:0.5", {1.0F, -5.0F, 0.5F, 3.0F});
  EXPECT_EQ(result, (std::vector<float>{0.0F, -5.0F, 0.0F, 3.0F}));
  EXPECT_EQ(through("topk:0.25", {2.0F, 2.0F, 2.0F, 2.0F}), (std::vector<float>{2.0F, 0.0F, 0.0F, 0.0F}));
}

TEST(WireCodec, WhatIsLeftOutIsKept) {
  const auto values = random_values(1000);
  for (const char* format : {"int8", "topk:0.1"}) {
    std::vector<float> residual(values.size());
    const auto first = through(format, values, residual.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(first[i] + residual[i], values[i], 1e-6) << format;
    const auto second = through(format, values, residual.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(first[i] + second[i] + residual[i], 2 * values[i], 1e-5) << format;
    }
  }
}

TEST(WireCodec, ADamagedMessageIsAnError) {
  const WireFormat wire = WireFormat::parse("topk:0.5");
  std::vector<std::byte> message(encoded_bytes(wire, 4), std::byte{0xff});
  std::vector<float> result(4);
  EXPECT_THROW(decode(wire, message.data(), 4, result.data()), EngineError);
}

}  // namespace
}  // namespace cann::hccl
