#pragma once
// Transfers of one rank that need its network card at the same time share it: gradients that are reduced between
// servers while a pipeline stage sends its activations, say.
//
// A transfer that needs the card for u microseconds, of which it overlaps o_i with others in its direction, takes the
// sum of all o_i longer. That is when it ends under fair sharing (processor sharing, Kleinrock 1967) with those that
// were there before it; their own ends have been handed on already and stay, which is up to u too early. Links of a
// full mesh and of other cards are not shared. Torch-free.

#include <span>
#include <vector>

#include "sim/timeline.h"
#include "sim/topology.h"

namespace cann::sim {

// Of a collective of `group`, the share of its time in which bytes are between servers; 0 to 1.
double network_share(const Topology& topology, const GroupShape& group);

// replay() with sharing. `shares[i][g]` is network_share() of group g of ranks[i].
std::vector<RankResult> replay(std::span<const RankTrace> ranks, const Topology& topology,
                               std::span<const std::vector<double>> shares);

// The time for which one card's network is taken.
class NetworkCard {
 public:
  enum Direction : uint8_t { kOut = 1, kIn = 2, kBoth = 3 };
  // How much longer a transfer takes that needs the card from `start` for `us`.
  double delay(double start, double us, Direction direction) const;
  void take(double start, double end, Direction direction);

 private:
  struct Taken {
    double start, end;
    Direction direction;
  };
  std::vector<Taken> taken_;  // the latest ones
};

}  // namespace cann::sim
