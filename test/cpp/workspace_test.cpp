// What kernels take of HBM for themselves.

#include "sim/workspace.h"

#include <gtest/gtest.h>

#include <vector>

namespace cann::sim {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class WorkspaceTest : public ::testing::Test {
 protected:
  const Soc& soc_ = find_soc("Ascend910B2");
  std::vector<int64_t> sizes_{1, 40, 4096, 128};
  TensorDesc tensor_{.sizes = sizes_, .dtype = Dtype::kBFloat16, .bytes = 40 * 4096 * 128 * 2};

  Workspace of(std::string_view name, size_t outputs) const {
    const std::vector<TensorDesc> in(3, tensor_), out(outputs, tensor_);
    return workspace_of({.name = name, .inputs = in, .outputs = out}, soc_);
  }
};

TEST_F(WorkspaceTest, BackwardOfAttentionHoldsItsGradientsInFloat32) {
  const int64_t gradients = 3 * 40 * 4096 * 128 * 4;
  EXPECT_EQ(of("npu_fusion_attention_grad", 3).low, 16 * kMiB + gradients);
  EXPECT_GT(of("npu_fusion_attention_grad", 3).bytes, of("npu_fusion_attention", 1).bytes);
}

TEST_F(WorkspaceTest, ForwardOfAttentionDoesNotDependOnTheLength) {
  const Workspace workspace = of("npu_fusion_attention", 1);
  EXPECT_GT(workspace.bytes, 16 * kMiB);
  EXPECT_LT(workspace.bytes, 64 * kMiB);
}

TEST_F(WorkspaceTest, RangesHoldTheirValue) {
  for (const char* name : {"mm", "npu_fusion_attention", "npu_fusion_attention_grad", "sort"}) {
    const Workspace workspace = of(name, 1);
    EXPECT_LE(workspace.low, workspace.bytes) << name;
    EXPECT_LE(workspace.bytes, workspace.high) << name;
    EXPECT_GT(workspace.bytes, 0) << name;
  }
}

TEST_F(WorkspaceTest, OthersTakeNone) { EXPECT_EQ(of("add", 1).high, 0); }

}  // namespace
}  // namespace cann::sim
