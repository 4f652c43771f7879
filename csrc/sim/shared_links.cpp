#include "sim/shared_links.h"

#include <algorithm>

namespace cann::sim {
namespace {

// Transfers that are remembered: more than a rank has under way at once.
constexpr size_t kRemembered = 32;
// Large enough that launches and latencies do not matter.
constexpr double kProbeBytes = 1e9;

}  // namespace

double network_share(const Topology& topology, const GroupShape& group) {
  if (group.domains <= 1) return 0;
  const GroupShape inside{.ranks = group.local, .local = group.local, .domains = 1, .dies = group.dies};
  const double near = topology.collective_us(Collective::kAllGather, kProbeBytes, inside);
  return std::clamp(1 - near / topology.collective_us(Collective::kAllGather, kProbeBytes, group), 0.0, 1.0);
}

double NetworkCard::delay(double start, double us, Direction direction) const {
  double delay = 0;
  for (const Taken& other : taken_) {
    if ((other.direction & direction) == 0) continue;
    delay += std::max(0.0, std::min(other.end, start + us) - std::max(other.start, start));
  }
  return delay;
}

void NetworkCard::take(double start, double end, Direction direction) {
  if (end <= start) return;
  if (taken_.size() >= kRemembered) taken_.erase(taken_.begin());
  taken_.push_back({start, end, direction});
}

}  // namespace cann::sim
