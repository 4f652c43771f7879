// The cost model against published measurements, and against what must hold for any chip.

#include "sim/cost_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace cann::sim {
namespace {

class CostModelTest : public ::testing::Test {
 protected:
  const Soc& soc_ = find_soc("Ascend910B2");
  Topology topology_{soc_, 8};
  CostModel model_{soc_, topology_};

  double tflops(double m, double n, double k) const {
    return 2 * m * n * k / model_.matmul_us(m, n, k, 1, Dtype::kBFloat16) / 1e6;
  }
};

// A desc over sizes that live as long as the test.
struct Tensors {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<TensorDesc> descs;
  explicit Tensors(std::vector<std::vector<int64_t>> s, Dtype dtype = Dtype::kBFloat16) : sizes(std::move(s)) {
    for (const auto& size : sizes) {
      TensorDesc desc{.sizes = size, .dtype = dtype};
      desc.bytes = desc.numel() * (dtype == Dtype::kFloat32 ? 4 : 2);
      descs.push_back(desc);
    }
  }
};

// mamf-finder on a 910B2C, torch 2.4: TFLOPS of bf16 products, launch included.
TEST_F(CostModelTest, ProductsReproduceThePublishedFourWithinFivePercent) {
  EXPECT_NEAR(tflops(6912, 16384, 2048) / 291.6, 1, 0.05);
  EXPECT_NEAR(tflops(2304, 5120, 1536) / 272.6, 1, 0.05);
  EXPECT_NEAR(tflops(6144, 17920, 2816) / 301.3, 1, 0.05);
  EXPECT_NEAR(tflops(14336, 4096, 4096) / 317.3, 1, 0.05);
}

TEST_F(CostModelTest, NoProductReachesMoreThanTheCap) {
  for (const double size : {1024., 4096., 16384., 65536.}) {
    EXPECT_LE(tflops(size, size, size), soc_.peak_fp16_tflops * soc_.matmul_cap * 1.0001) << size;
  }
}

TEST_F(CostModelTest, OneTileMoreThanAWaveCostsAnotherWave) {
  // 24 cores, tiles of 128 x 256: 24 tiles are one wave, 25 are two.
  const double one = model_.matmul_us(128 * 24, 256, 4096, 1, Dtype::kFloat16) - soc_.cube_us;
  const double two = model_.matmul_us(128 * 25, 256, 4096, 1, Dtype::kFloat16) - soc_.cube_us;
  EXPECT_GT(two, one * 1.15);  // smaller tiles soften it
}

TEST_F(CostModelTest, Float32ProductsRunAtAQuarter) {
  const double half = model_.matmul_us(8192, 8192, 8192, 1, Dtype::kFloat16) - soc_.cube_us;
  const double single = model_.matmul_us(8192, 8192, 8192, 1, Dtype::kFloat32) - soc_.cube_us;
  EXPECT_NEAR(single / half, 4, 0.01);
}

TEST_F(CostModelTest, AProductOfOneRowIsBoundByReadingTheWeight) {
  const double us = model_.matmul_us(1, 8192, 8192, 1, Dtype::kBFloat16);
  EXPECT_NEAR(us, model_.vector_us(8192.0 * 8192 * 2, 0), us * 0.3);
  EXPECT_GE(us, model_.vector_us(8192.0 * 8192 * 2, 0));
}

TEST_F(CostModelTest, AnOperandBeyondL2IsReadAgain) {
  // 16 rows: bound by memory. Both operands beyond 192 MiB need the smaller one twice.
  const double k = 8 << 20;
  const double twice = model_.matmul_us(16, 16, k, 1, Dtype::kFloat16);  // 256 MiB each
  EXPECT_GT(twice, model_.vector_us(2 * 16 * k * 2 * 1.4, 0));
}

TEST_F(CostModelTest, LinearAndMmAgree) {
  const Tensors mm({{4096, 1024}, {1024, 512}}), linear({{4, 1024, 1024}, {512, 1024}}), out({{4096, 512}});
  const Cost a = model_.cost({.name = "mm", .inputs = mm.descs, .outputs = out.descs});
  const Cost b = model_.cost({.name = "linear", .inputs = linear.descs, .outputs = out.descs});
  EXPECT_DOUBLE_EQ(a.us, b.us);
  EXPECT_DOUBLE_EQ(a.flops, 2.0 * 4096 * 1024 * 512);
  EXPECT_EQ(a.engine, Engine::kCube);
}

TEST_F(CostModelTest, CausalAttentionCostsHalfAndBackwardTwoAndAHalfTimesTheWork) {
  const Tensors qkv({{1, 32, 8192, 128}, {1, 32, 8192, 128}, {1, 32, 8192, 128}});
  const Tensors grad({{1, 32, 8192, 128}, {1, 32, 8192, 128}, {1, 32, 8192, 128}, {1, 32, 8192, 128}});
  const char* const name = "_scaled_dot_product_fused_attention_overrideable";
  const Cost full = model_.cost({.name = name, .inputs = qkv.descs});
  const Cost causal = model_.cost({.name = name, .inputs = qkv.descs, .density = 0.5});
  const Cost backward =
      model_.cost({.name = "_scaled_dot_product_fused_attention_overrideable_backward", .inputs = grad.descs});
  EXPECT_DOUBLE_EQ(full.flops, 4.0 * 32 * 8192 * 8192 * 128);
  EXPECT_DOUBLE_EQ(causal.flops, full.flops / 2);
  EXPECT_DOUBLE_EQ(backward.flops, full.flops * 2.5);
  // The rate published for this shape: 189.5 TFLOPS.
  EXPECT_NEAR(full.flops / full.us / 1e6, 189.5, 4);
}

TEST_F(CostModelTest, AttentionCostsTheSameInEveryLayout) {
  const char* const name = "npu_fusion_attention";
  const Tensors bnsd({{2, 16, 4096, 128}, {2, 16, 4096, 128}, {2, 16, 4096, 128}});
  const Tensors bsh({{2, 4096, 2048}, {2, 4096, 2048}, {2, 4096, 2048}});
  const Tensors sbh({{4096, 2, 2048}, {4096, 2, 2048}, {4096, 2, 2048}});
  const double us = model_.cost({.name = name, .inputs = bnsd.descs}).us;
  EXPECT_DOUBLE_EQ(model_.cost({.name = name, .inputs = bsh.descs, .layout = "BSH", .heads = 16}).us, us);
  EXPECT_DOUBLE_EQ(model_.cost({.name = name, .inputs = sbh.descs, .layout = "SBH", .heads = 16}).us, us);
}

TEST_F(CostModelTest, VectorOperatorsAreBoundByBytes) {
  const Tensors in({{1 << 12, 1 << 12}, {1 << 12, 1 << 12}}), out({{1 << 12, 1 << 12}});
  const Cost add = model_.cost({.name = "add", .inputs = in.descs, .outputs = out.descs, .pointwise = true});
  EXPECT_EQ(add.engine, Engine::kVector);
  EXPECT_TRUE(add.modelled);
  EXPECT_DOUBLE_EQ(add.bytes, 3.0 * (1 << 25));
  EXPECT_DOUBLE_EQ(add.us, model_.vector_us(add.bytes));
}

TEST_F(CostModelTest, ALookupReadsItsRowsNotTheTable) {
  const Tensors in({{100000, 4096}}), out({{16, 4096}});
  EXPECT_DOUBLE_EQ(model_.cost({.name = "embedding", .inputs = in.descs, .outputs = out.descs}).bytes,
                   2.0 * 16 * 4096 * 2);
}

TEST_F(CostModelTest, UnknownOperatorsSaySo) {
  const Tensors in({{32, 32}});
  EXPECT_FALSE(model_.cost({.name = "linalg_svd", .inputs = in.descs}).modelled);
  EXPECT_TRUE(model_.cost({.name = "_foreach_add_", .inputs = in.descs}).modelled);
  EXPECT_DOUBLE_EQ(model_.cost({.name = "empty"}).us, 0);
}

TEST_F(CostModelTest, AFusedCollectiveHidesMostOfTheShorterPart) {
  const Tensors in({{8192, 4096}, {4096, 4096}});
  const Cost fused = model_.cost({.name = "npu_mm_reduce_scatter_base", .inputs = in.descs, .world = 8});
  const double product = model_.matmul_us(8192, 4096, 4096, 1, Dtype::kBFloat16);
  const double moved = topology_.collective_us(Collective::kReduceScatter, 8192.0 * 4096 * 2, {.ranks = 8, .local = 8});
  EXPECT_GT(fused.us, std::max(product, moved));
  EXPECT_LT(fused.us, product + moved);
}

TEST_F(CostModelTest, ConvolutionCountsItsProducts) {
  const Tensors in({{8, 64, 56, 56}, {128, 64, 3, 3}}), out({{8, 128, 56, 56}});
  const Cost cost = model_.cost({.name = "convolution", .inputs = in.descs, .outputs = out.descs});
  EXPECT_DOUBLE_EQ(cost.flops, 2.0 * 8 * 128 * 56 * 56 * 64 * 9);
}

TEST_F(CostModelTest, AGroupedProductPaysForWholeTilesOfEveryGroup) {
  const auto cost = [&](int64_t groups, int64_t rows) {
    const Tensors in({{rows, 2048}, {groups, 2048, 1408}});
    const Tensors out({{rows, 1408}});
    return model_.cost({.name = "grouped_matmul", .inputs = in.descs, .outputs = out.descs});
  };
  const Cost one = cost(1, 8192), many = cost(64, 8192), crumbs = cost(64, 640);
  EXPECT_EQ(one.engine, Engine::kCube);
  EXPECT_DOUBLE_EQ(one.flops, 2. * 8192 * 2048 * 1408);
  EXPECT_DOUBLE_EQ(many.flops, one.flops);
  EXPECT_GT(many.us, one.us);
  // 10 rows a group read all weights: bound by memory, far from a tenth of the time.
  EXPECT_GT(crumbs.us, many.us / 4);

  const Tensors in({{8192, 2048}, {8192, 1408}});
  const Tensors out({{64, 2048, 1408}});
  const Cost weights = model_.cost({.name = "grouped_matmul_weight_grad", .inputs = in.descs, .outputs = out.descs});
  EXPECT_DOUBLE_EQ(weights.flops, one.flops);
  EXPECT_TRUE(weights.modelled);
}

TEST_F(CostModelTest, AnLstmLayerCostsWhatItsStepsDo) {
  constexpr int64_t kSteps = 20, kBatch = 32, kIn = 256, kHidden = 512;
  const Tensors layer({{kSteps, kBatch, kIn}, {4 * kHidden, kIn}, {4 * kHidden, kHidden}});
  const Tensors all_inputs({{kSteps, kBatch, kIn}, {4 * kHidden, kIn}}),
      step({{kBatch, kHidden}, {4 * kHidden, kHidden}});
  const auto cost = [&](const char* name, const Tensors& in) {
    return model_.cost({.name = name, .inputs = in.descs, .outputs = {}});
  };
  const Cost whole = cost("mkldnn_rnn_layer", layer), first = cost("linear", all_inputs), each = cost("linear", step);
  EXPECT_DOUBLE_EQ(whole.flops, first.flops + kSteps * each.flops);
  EXPECT_GT(whole.us, first.us + kSteps * each.us);
  EXPECT_TRUE(whole.modelled);
  EXPECT_DOUBLE_EQ(cost("mkldnn_rnn_layer_backward", layer).flops, 2 * whole.flops);
}

}  // namespace
}  // namespace cann::sim
