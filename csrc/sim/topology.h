#pragma once
// Where the ranks of a job are, and what moving bytes between them takes.
//
// Ranks are numbered as torchrun does: rank r is card r % cards_per_server of server r / cards_per_server. Cards of one
// mesh domain (Soc::mesh_size, at most a server unless the mesh is switched) reach each other over HCCS or UB, others
// over their network cards. Torch-free, immutable, thread-safe.

#include <cstdint>
#include <span>

#include "sim/soc.h"

namespace cann::sim {

enum class Collective : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kPointToPoint,
  kBarrier,
};

const char* name_of(Collective collective);

// What a group's cost depends on: its members, and how many of them share a mesh domain.
struct GroupShape {
  int ranks = 1;
  int local = 1;      // members in the domain that holds most of them
  int domains = 1;    // domains with members
  bool dies = false;  // two dies of one package
};

class Topology {
 public:
  // `soc` must outlive this. 1 <= cards_per_server.
  Topology(const Soc& soc, int cards_per_server);

  int cards_per_server() const { return cards_per_server_; }
  // Mesh domain of a global rank.
  int domain_of(int rank) const { return rank / domain_size_; }
  // Linear in the number of members; compute once per group.
  GroupShape shape_of(std::span<const int> global_ranks) const;

  // Device time in microseconds of one collective. `bytes` is the whole payload: the tensor of all_reduce, broadcast
  // and reduce, the gathered tensor of all_gather and gather, the full input of the others, the message of
  // kPointToPoint. Without waiting for late ranks.
  //
  // Within a full mesh HCCL exchanges directly with all peers at once, so that a phase takes bytes / (n * link); across
  // domains it works in two levels: each card carries its share of the domain's bytes over its own network card.
  double collective_us(Collective collective, double bytes, const GroupShape& group) const;

 private:
  double phase_us(double bytes, const GroupShape& group) const;
  double local_us(double bytes, int ranks, bool dies) const;
  double remote_us(double bytes, int ranks) const;

  const Soc& soc_;
  int cards_per_server_;
  int domain_size_;
};

}  // namespace cann::sim
