// Parsing of the environment: defaults, allowed values, and errors that name the variable.

#include "sim/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace cann::sim {
namespace {

using Variables = std::map<std::string, std::string>;

Env read(const Variables& variables) {
  return Env::from([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

// Sets a variable of the process for the length of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, /*overwrite=*/1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Env, DefaultsWhenNothingIsSet) {
  const Env env = read({});
  EXPECT_EQ(env.soc, "Ascend910B2");
  EXPECT_EQ(env.device_count, 8);
  EXPECT_FALSE(env.hbm_bytes.has_value());
  EXPECT_EQ(env.host_margin_bytes, size_t{256} << 20);
  EXPECT_TRUE(env.huge_pages);
  EXPECT_TRUE(env.direct_ops);
  EXPECT_FALSE(env.cpu_capability.has_value());
  EXPECT_FALSE(env.compact_errors);
  EXPECT_TRUE(env.memory_caching);
  EXPECT_EQ(env.alloc_conf, "");
  EXPECT_EQ(env.streams_per_device, 32);
}

TEST(Env, ReadsEveryVariable) {
  const Env env = read({{"TORCH_CANN_SOC", " Ascend910B4 "},
                        {"TORCH_CANN_DEVICE_COUNT", "2"},
                        {"TORCH_CANN_HBM_MB", "4096"},
                        {"TORCH_CANN_HOST_MARGIN_MB", "0"},
                        {"TORCH_CANN_HUGE_PAGES", "0"},
                        {"TORCH_CANN_DIRECT_OPS", "0"},
                        {"TORCH_CANN_CPU_CAPABILITY", "avx2"},
                        {"TORCH_NPU_COMPACT_ERROR_OUTPUT", "1"},
                        {"PYTORCH_NO_NPU_MEMORY_CACHING", "1"},
                        {"STREAMS_PER_DEVICE", "8"}});
  EXPECT_EQ(env.soc, "Ascend910B4");
  EXPECT_EQ(env.device_count, 2);
  EXPECT_EQ(env.hbm_bytes, size_t{4096} << 20);
  EXPECT_EQ(env.host_margin_bytes, 0u);
  EXPECT_FALSE(env.huge_pages);
  EXPECT_FALSE(env.direct_ops);
  EXPECT_EQ(env.cpu_capability, CpuCapability::kAvx2);
  EXPECT_TRUE(env.compact_errors);
  EXPECT_FALSE(env.memory_caching);
  EXPECT_EQ(env.streams_per_device, 8);
}

TEST(Env, EmptyMeansUnset) {
  const Env env = read({{"TORCH_CANN_SOC", ""}, {"TORCH_CANN_DEVICE_COUNT", " "}, {"TORCH_CANN_HBM_MB", ""}});
  EXPECT_EQ(env.soc, "Ascend910B2");
  EXPECT_EQ(env.device_count, 8);
  EXPECT_FALSE(env.hbm_bytes.has_value());
}

TEST(Env, MalformedValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"TORCH_CANN_DEVICE_COUNT", "0"},     {"TORCH_CANN_DEVICE_COUNT", "65"},
      {"TORCH_CANN_DEVICE_COUNT", "two"},   {"TORCH_CANN_DEVICE_COUNT", "2x"},
      {"TORCH_CANN_HBM_MB", "127"},         {"TORCH_CANN_HBM_MB", "-1"},
      {"TORCH_CANN_HBM_MB", "0"},
      {"TORCH_CANN_HBM_MB", "99999999999"}, {"TORCH_CANN_HOST_MARGIN_MB", "1.5"},
      {"TORCH_CANN_HUGE_PAGES", "yes"},     {"TORCH_CANN_DIRECT_OPS", "2"},
      {"TORCH_CANN_CPU_CAPABILITY", "sse"}, {"TORCH_NPU_COMPACT_ERROR_OUTPUT", "-"}};
  for (const auto& [name, value] : cases) {
    const std::string message = error_of({{name, value}});
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(value), std::string::npos) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
  }
}

TEST(Env, OtherStreamPoolSizesMean32) {
  const Env replaced = read({{"STREAMS_PER_DEVICE", "16"}});
  EXPECT_EQ(replaced.streams_per_device, 32);
  ASSERT_EQ(replaced.warnings.size(), 1u);
  EXPECT_EQ(replaced.warnings[0], "STREAMS_PER_DEVICE=\"16\" is neither 8 nor 32; 32 is used.");
  EXPECT_EQ(read({{"STREAMS_PER_DEVICE", "some"}}).warnings.size(), 1u);
  const Env allowed = read({{"STREAMS_PER_DEVICE", "32"}});
  EXPECT_EQ(allowed.streams_per_device, 32);
  EXPECT_TRUE(allowed.warnings.empty());
}

TEST(Env, AllocatorOptionsFallBackToTheGenericName) {
  EXPECT_EQ(read({{"PYTORCH_ALLOC_CONF", "a:1"}}).alloc_conf, "a:1");
  EXPECT_EQ(read({{"PYTORCH_ALLOC_CONF", "a:1"}, {"PYTORCH_NPU_ALLOC_CONF", "b:2"}}).alloc_conf, "b:2");
}

TEST(Env, VisibleDevices) {
  unsetenv("ASCEND_RT_VISIBLE_DEVICES");
  EXPECT_FALSE(Env::visible_devices(8).has_value());
  const std::pair<const char*, std::vector<int>> cases[] = {
      {"", {}},        {"3", {3}},     {"7,0", {7, 0}}, {" 1 , 2 ", {1, 2}}, {"0,1,1,2", {0, 1}}, {"0,8,1", {0}},
      {"0,-1,1", {0}}, {"0,x,1", {0}}, {"x", {}},       {"2,", {2}},         {"1,,2", {1}},
  };
  for (const auto& [text, expected] : cases) {
    const ScopedVariable variable("ASCEND_RT_VISIBLE_DEVICES", text);
    EXPECT_EQ(Env::visible_devices(8), expected) << text;
  }
}

TEST(Env, RankIsReadAnew) {
  unsetenv("RANK");
  EXPECT_EQ(Env::rank(), -1);
  const ScopedVariable variable("RANK", "5");
  EXPECT_EQ(Env::rank(), 5);
  setenv("RANK", "none", 1);
  EXPECT_EQ(Env::rank(), -1);
}

}  // namespace
}  // namespace cann::sim
