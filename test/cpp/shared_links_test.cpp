// Transfers that need one network card at the same time.

#include "sim/shared_links.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace cann::sim {
namespace {

class SharedLinksTest : public ::testing::Test {
 protected:
  const Soc& soc_ = find_soc("Ascend910B2");
  Topology topology_{soc_, 8};

  double share(std::vector<int> ranks) const { return network_share(topology_, topology_.shape_of(ranks)); }

  // Rank 0 starts a collective of 100 us with rank 8, and one of `us` with rank 16, 40 us later. Ends of both.
  std::pair<double, double> two_collectives(float us, double first_share, double second_share) const {
    const std::vector<Action> actions{{.kind = Action::kCollective, .what = 0, .event = 1, .us = 100},
                                      {.kind = Action::kLaunch, .us = 40},
                                      {.kind = Action::kCollective, .what = 1, .event = 2, .us = us}};
    const RankTrace trace{.rank = 0, .actions = actions, .groups = {"a", "b"}, .members = {{0}, {0}}};
    const std::vector<std::vector<double>> shares{{first_share, second_share}};
    const auto results = replay(std::span(&trace, 1), topology_, shares);
    return {results[0].end[0], results[0].end[2]};
  }
};

TEST_F(SharedLinksTest, GroupsOfAServerUseNoNetworkAndThoseAcrossNothingElse) {
  EXPECT_EQ(share({0, 1, 2, 3}), 0);
  EXPECT_GT(share({0, 8, 16}), 0.99);
  std::vector<int> all(32);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_GT(share(all), 0.2);
  EXPECT_LT(share(all), 0.9);
}

TEST_F(SharedLinksTest, AShortTransferTakesTwiceAsLongBesideALongOne) {
  EXPECT_DOUBLE_EQ(two_collectives(20, 1, 1).second, 40 + 2 * 20);
}

TEST_F(SharedLinksTest, ALongTransferWaitsForTheRestOfTheOther) {
  EXPECT_DOUBLE_EQ(two_collectives(100, 1, 1).second, 40 + 100 + 60);
}

TEST_F(SharedLinksTest, DifferentLinksAreNotShared) {
  EXPECT_DOUBLE_EQ(two_collectives(100, 1, 0).second, 140);
  EXPECT_DOUBLE_EQ(two_collectives(100, 0, 1).second, 140);
  EXPECT_DOUBLE_EQ(two_collectives(100, 1, 1).first, 100);
}

TEST_F(SharedLinksTest, TheTwoDirectionsOfACardAreLinksOfTheirOwn) {
  NetworkCard card;
  card.take(0, 100, NetworkCard::kOut);
  EXPECT_EQ(card.delay(50, 10, NetworkCard::kIn), 0);
  EXPECT_EQ(card.delay(50, 10, NetworkCard::kOut), 10);
  EXPECT_EQ(card.delay(50, 10, NetworkCard::kBoth), 10);
  EXPECT_EQ(card.delay(100, 10, NetworkCard::kOut), 0);
}

}  // namespace
}  // namespace cann::sim
