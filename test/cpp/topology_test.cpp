// Groups of ranks on servers, and what moving bytes between them takes.

#include "sim/topology.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace cann::sim {
namespace {

std::vector<int> ranks(int count, int stride = 1, int first = 0) {
  std::vector<int> all(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) all[static_cast<size_t>(i)] = first + i * stride;
  return all;
}

class TopologyTest : public ::testing::Test {
 protected:
  const Soc& soc_ = find_soc("Ascend910B2");
  Topology topology_{soc_, 8};

  // Algorithm bandwidth in GB/s, launch excluded.
  double bandwidth(Collective collective, double bytes, const std::vector<int>& group) const {
    return bytes / (topology_.collective_us(collective, bytes, topology_.shape_of(group)) - soc_.collective_us) / 1e3;
  }
};

// Measured on eight 910B2: all_gather 149, all_reduce 72 GB/s.
TEST_F(TopologyTest, EightCardsReachTheMeasuredBandwidth) {
  EXPECT_NEAR(bandwidth(Collective::kAllGather, 1e9, ranks(8)), 149, 2);
  EXPECT_NEAR(bandwidth(Collective::kAllReduce, 1e9, ranks(8)), 72, 3);
}

TEST_F(TopologyTest, AFullMeshIsFasterTheMoreCardsTakePart) {
  EXPECT_LT(bandwidth(Collective::kAllReduce, 1e9, ranks(2)), bandwidth(Collective::kAllReduce, 1e9, ranks(4)));
  EXPECT_LT(bandwidth(Collective::kAllReduce, 1e9, ranks(4)), bandwidth(Collective::kAllReduce, 1e9, ranks(8)));
}

TEST_F(TopologyTest, ShapesOfGroups) {
  const GroupShape tensor_parallel = topology_.shape_of(ranks(8, 1, 16));
  EXPECT_EQ(tensor_parallel.local, 8);
  EXPECT_EQ(tensor_parallel.domains, 1);
  const GroupShape data_parallel = topology_.shape_of(ranks(16, 8));
  EXPECT_EQ(data_parallel.local, 1);
  EXPECT_EQ(data_parallel.domains, 16);
  const GroupShape world = topology_.shape_of(ranks(32));
  EXPECT_EQ(world.local, 8);
  EXPECT_EQ(world.domains, 4);
}

TEST_F(TopologyTest, TwoLevelsCarryOneShareOverEachNetworkCard) {
  const double bytes = 1e9;
  const double two_levels = topology_.collective_us(Collective::kAllGather, bytes, topology_.shape_of(ranks(16)));
  const double flat = topology_.collective_us(Collective::kAllGather, bytes, topology_.shape_of(ranks(16, 8)));
  EXPECT_LT(two_levels, flat / 3);
}

TEST_F(TopologyTest, PointToPointTakesTheLinkThatJoinsThem) {
  EXPECT_NEAR(bandwidth(Collective::kPointToPoint, 1e9, {0, 1}), soc_.mesh_pair_gbps, 0.1);
  EXPECT_NEAR(bandwidth(Collective::kPointToPoint, 1e9, {0, 8}), soc_.nic_gbps, 0.1);
}

TEST_F(TopologyTest, DiesOfAPackageUseTheirOwnLink) {
  const Soc& soc = find_soc("Ascend910_9391");
  const Topology topology(soc, 16);
  EXPECT_TRUE(topology.shape_of(ranks(2)).dies);
  EXPECT_FALSE(topology.shape_of(ranks(2, 1, 1)).dies);
  EXPECT_EQ(topology.shape_of(ranks(64)).domains, 1);
  EXPECT_LT(topology.collective_us(Collective::kAllReduce, 1e9, topology.shape_of(ranks(2))),
            topology.collective_us(Collective::kAllReduce, 1e9, topology.shape_of(ranks(2, 1, 1))));
}

TEST_F(TopologyTest, AloneCostsNothing) {
  for (const auto collective : {Collective::kAllReduce, Collective::kAllToAll, Collective::kBarrier}) {
    EXPECT_EQ(topology_.collective_us(collective, 1e9, topology_.shape_of(ranks(1))), 0);
  }
}

}  // namespace
}  // namespace cann::sim
