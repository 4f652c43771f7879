// HCCL's environment variables and the choice of algorithms: values, defaults, refusals, warnings.

#include "distributed/hccl_env.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace cann::hccl {
namespace {

HcclEnv read(const std::map<std::string, std::string>& variables) {
  return HcclEnv::from([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  try {
    read(variables);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(HcclEnv, Defaults) {
  const HcclEnv env = read({{"HCCL_ALGO", ""}});
  EXPECT_EQ(env.buffer_megabytes, 200u);
  EXPECT_EQ(env.p2p_buffer_megabytes, 20u);
  EXPECT_FALSE(env.connect_timeout || env.exec_timeout);
  EXPECT_EQ(env.error_handling, ErrorHandling::kCleanUp);
  EXPECT_TRUE(env.wire.exact());
  EXPECT_TRUE(env.warnings.empty());
}

TEST(HcclEnv, Values) {
  const HcclEnv env = read({{"HCCL_BUFFSIZE", "10"},
                            {"HCCL_EXEC_TIMEOUT", "0"},
                            {"HCCL_CONNECT_TIMEOUT", "7"},
                            {"TORCH_HCCL_ASYNC_ERROR_HANDLING", "3"},
                            {"TORCH_CANN_HCCL_WIRE", "topk:0.01"},
                            {"HCCL_SOCKET_IFNAME", "=eth1,eth2"},
                            {"HCCL_IF_IP", "10.0.0.1"},
                            {"HCCL_DETERMINISTIC", "strict"},
                            {"TORCH_HCCL_BLOCKING_WAIT", "1"}});
  EXPECT_EQ(env.buffer_megabytes, 10u);
  EXPECT_EQ(env.exec_timeout->count(), 0);
  EXPECT_EQ(env.connect_timeout->count(), 7);
  EXPECT_EQ(env.error_handling, ErrorHandling::kTearDown);
  EXPECT_EQ(env.wire.text(), "topk:0.01");
  EXPECT_EQ(env.interface, "eth1");
  EXPECT_EQ(env.host_address, "10.0.0.1");
  EXPECT_TRUE(env.warnings.empty());
}

TEST(HcclEnv, RefusalsNameVariableValueAndWhatIsAllowed) {
  const std::map<std::string, std::pair<std::string, std::string>> cases{
      {"HCCL_BUFFSIZE", {"0", "at least 1"}},
      {"HCCL_CONNECT_TIMEOUT", {"soon", "at least 1"}},
      {"HCCL_BLOCKING_WAIT", {"2", "from 0 to 1"}},
      {"TORCH_HCCL_ASYNC_ERROR_HANDLING", {"4", "from 0 to 3"}},
      {"HCCL_DETERMINISTIC", {"yes", "true, false, strict"}},
      {"HCCL_ALGO", {"level0:NA;level1:star", "ring, H-D_R"}},
      {"TORCH_CANN_HCCL_WIRE", {"fp8", "fp16"}},
  };
  for (const auto& [name, wrong] : cases) {
    const std::string text = refusal({{name, wrong.first}});
    EXPECT_TRUE(contains(text, name + "=\"" + wrong.first + "\"")) << text;
    EXPECT_TRUE(contains(text, wrong.second)) << text;
  }
}

TEST(HcclEnv, WhatIsOddIsWarnedAbout) {
  const HcclEnv env = read({{"HCCL_ASYNC_ERROR_HANDLING", "1"},
                            {"HCCL_EXEC_TIMEOUT", "-5"},
                            {"HCCL_SOCKET_IFNAME", "^docker"},
                            {"HCCL_ALGO", "level0:NA;level1:NHR"},
                            {"TORCH_HCCL_STATUS_SAVE_ENABLE", "1"}});
  EXPECT_EQ(env.error_handling, ErrorHandling::kTearDown);
  EXPECT_FALSE(env.exec_timeout);
  EXPECT_EQ(env.interface, "");
  ASSERT_EQ(env.warnings.size(), 5u);
}

Algorithm chosen(const AlgorithmChoice& choice, size_t bytes, int ranks, MeshOperation what = MeshOperation::kAllReduce,
                 DataType dtype = DataType::kFloat, Reduction reduction = Reduction::kSum) {
  return choice.choose(what, bytes, dtype, reduction, ranks);
}

TEST(AlgorithmChoice, AutomaticBySizeAndRanks) {
  const AlgorithmChoice none;
  EXPECT_EQ(chosen(none, 1000, 4), Algorithm::kWhole);
  EXPECT_EQ(chosen(none, 1 << 20, 8), Algorithm::kDirect);
  EXPECT_EQ(chosen(none, 1000, 16), Algorithm::kTree);
  EXPECT_EQ(chosen(none, 1 << 20, 16), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(none, 1 << 20, 12), Algorithm::kRing);
  EXPECT_EQ(chosen(none, 1 << 20, 16, MeshOperation::kAllReduce, DataType::kHalf), Algorithm::kDirect);
  EXPECT_EQ(chosen(none, 1 << 20, 16, MeshOperation::kBroadcast), Algorithm::kTree);
  EXPECT_EQ(chosen(none, 1 << 20, 16, MeshOperation::kAllGather), Algorithm::kRing);
}

TEST(AlgorithmChoice, WhatTheUserAsksFor) {
  const auto ring = AlgorithmChoice::parse("level0:NA;level1:ring");
  EXPECT_EQ(chosen(ring, 4, 2), Algorithm::kRing);
  EXPECT_EQ(chosen(ring, 4, 2, MeshOperation::kBroadcast), Algorithm::kDirect);
  EXPECT_EQ(chosen(ring, 1 << 20, 4, MeshOperation::kAllReduce, DataType::kFloat, Reduction::kPremultipliedSum),
            Algorithm::kDirect);
  const auto one = AlgorithmChoice::parse("allreduce=level0:NA;level1:H-D_R/allgather=level0:NA;level1:ring");
  EXPECT_EQ(chosen(one, 1 << 20, 4), Algorithm::kHalvingDoubling);
  EXPECT_EQ(chosen(one, 1 << 20, 3), Algorithm::kRing);
  EXPECT_EQ(chosen(one, 1 << 20, 4, MeshOperation::kAllGather), Algorithm::kRing);
  EXPECT_EQ(chosen(one, 1 << 20, 4, MeshOperation::kReduceScatter), Algorithm::kDirect);
  EXPECT_TRUE(one.warnings().empty());
  EXPECT_EQ(AlgorithmChoice::parse("alltoall=level0:NA;level1:ring").warnings().size(), 1u);
  for (const char* wrong : {"ring", "level0:ring;level1:ring", "level1:", "sum=level0:NA;level1:ring", "a:b"}) {
    EXPECT_THROW(AlgorithmChoice::parse(wrong), std::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace cann::hccl
