#pragma once
// Where the ranks of a group are, and which of them carry what between hosts.
//
// Rank l of a host's ranks and the ranks in its place on the other hosts form a rail. There are as many rails as every
// host has ranks for; a host's further ranks are on none. What is to be carried for each rank goes in waves: in wave w
// the carrier in place l takes what belongs to place l + w rails of each host, if that host has so many ranks. Hosts of
// equally many ranks need one wave. Immutable. No torch here.

#include <cstddef>
#include <string>
#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

class HostMap {
 public:
  // Ranks by host: hosts[h][l] is the rank in place l. Every rank of the group is in one place; no host is empty.
  using Hosts = std::vector<std::vector<int>>;

  // As seen by `rank`.
  HostMap(Hosts hosts, int rank);

  size_t hosts() const { return hosts_.size(); }
  size_t ranks() const { return ranks_; }
  size_t ranks_here() const { return hosts_[host_].size(); }
  size_t rails() const { return rails_; }
  size_t waves() const { return waves_; }
  bool even() const { return rails_ * hosts_.size() == ranks_; }

  struct Seat {
    size_t host;
    size_t place;
  };
  size_t host() const { return host_; }
  size_t place() const { return place_; }
  Seat seat_of(int rank) const;
  bool is_here(int rank) const { return seat_of(rank).host == host_; }

  // spans[r] of the ranks of this host, by place.
  std::vector<Span> of_this_host(const std::vector<Span>& spans) const;
  // What the carriers of this host, by place, carry in a wave for the ranks of `host`; empty spans for those who carry
  // nothing. As many as ranks_here().
  std::vector<Span> carried_for(size_t host, size_t wave, const std::vector<Span>& spans) const;
  // What this rank's rail carries in a wave, by host.
  std::vector<Span> on_this_rail(size_t wave, const std::vector<Span>& spans) const;

  // "ranks 0, 1 of this host or ranks 0, 2 across hosts": the ranks a part of the group connects, for messages.
  std::string describe() const;

 private:
  // spans[r] of the rank that the carrier in `place` serves on `host` in a wave.
  Span carried(size_t host, size_t place, size_t wave, const std::vector<Span>& spans) const;

  const Hosts hosts_;
  size_t ranks_ = 0;
  size_t rails_;
  size_t waves_ = 1;
  size_t host_ = 0;
  size_t place_ = 0;
};

}  // namespace cann::hccl
