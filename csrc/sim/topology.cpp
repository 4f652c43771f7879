#include "sim/topology.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace cann::sim {
namespace {

// gbps and microseconds: 1e9 bytes/s is 1e3 bytes/us.
double transfer_us(double bytes, double gbps) { return bytes / (gbps * 1e3); }

// A message between network cards, one way (H2).
constexpr double kNetworkLatencyUs = 1.5;

}  // namespace

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",     "broadcast",
                                 "reduce",     "gather",     "scatter",        "point_to_point", "barrier"};
  return kNames[static_cast<size_t>(collective)];
}

Topology::Topology(const Soc& soc, int cards_per_server)
    : soc_(soc),
      cards_per_server_(cards_per_server),
      domain_size_(soc.mesh_switched ? soc.mesh_size : std::max(1, std::min(soc.mesh_size, cards_per_server))) {}

GroupShape Topology::shape_of(std::span<const int> global_ranks) const {
  std::map<int, int> members;
  for (const int rank : global_ranks) ++members[domain_of(rank)];
  GroupShape shape;
  shape.ranks = std::max(1, static_cast<int>(global_ranks.size()));
  shape.domains = std::max(1, static_cast<int>(members.size()));
  for (const auto& [domain, count] : members) shape.local = std::max(shape.local, count);
  shape.dies = soc_.sio_gbps > 0 && shape.ranks == 2 && global_ranks[0] / 2 == global_ranks[1] / 2;
  return shape;
}

// One phase (scatter or gather) among the cards of a domain, which hold `bytes` together.
double Topology::local_us(double bytes, int ranks, bool dies) const {
  if (ranks <= 1) return 0;
  const double share = bytes / ranks;
  if (dies) return transfer_us(share, soc_.sio_gbps);
  if (soc_.mesh_switched) return transfer_us(share * (ranks - 1), soc_.mesh_link_gbps);
  return transfer_us(share, soc_.mesh_link_gbps);
}

// One phase among cards that meet over their network cards only.
double Topology::remote_us(double bytes, int ranks) const {
  if (ranks <= 1) return 0;
  return transfer_us(bytes * (ranks - 1) / ranks, soc_.nic_gbps) + kNetworkLatencyUs * std::ceil(std::log2(ranks));
}

double Topology::phase_us(double bytes, const GroupShape& group) const {
  return local_us(bytes, group.local, group.dies) + remote_us(bytes / group.local, group.domains);
}

double Topology::collective_us(Collective collective, double bytes, const GroupShape& group) const {
  if (group.ranks <= 1) return 0;
  double us = 0;
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
      us = phase_us(bytes, group);
      break;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
      us = 2 * phase_us(bytes, group);
      break;
    case Collective::kAllToAll: {
      // Bytes for cards of the own domain and of others travel over different links at the same time.
      const double away = static_cast<double>(group.ranks - group.local) / group.ranks;
      const double near = local_us(bytes * group.local / group.ranks, group.local, group.dies);
      us = std::max(near, away > 0 ? transfer_us(bytes * away, soc_.nic_gbps) + kNetworkLatencyUs : 0.0);
      break;
    }
    case Collective::kPointToPoint:
      us = group.domains > 1 ? transfer_us(bytes, soc_.nic_gbps) + kNetworkLatencyUs
                             : transfer_us(bytes, group.dies ? soc_.sio_gbps : soc_.mesh_pair_gbps);
      break;
    case Collective::kBarrier:
      us = group.domains > 1 ? kNetworkLatencyUs * std::ceil(std::log2(group.domains)) : 0;
      break;
  }
  return us + soc_.collective_us;
}

}  // namespace cann::sim
