#pragma once
// Collectives inside a host: direct access to the peers' memory, every rank reading from every other.
//
// For a tensor of S bytes and n ranks a rank reads / writes, and meets the others so often:
//   broadcast up to 128 KiB, and      is posted: copied into and out of the giver's post box, where the giver does not
//   small reduce                      wait (posts.h)
//   small (a rank's part <= 16 KiB)   copies its part into its announcement, meets once, reads the others' parts
//   all_reduce, reduce                reduces slice r of all tensors and writes it into all of them (the root's): S /
//   S,
//                                     twice; the least there is without a smarter memory
//   all_gather, broadcast, gather,    reads what it needs from where the peers hold it: (n-1) S / (n-1) S for
//   scatter, all_to_all               all_gather, S / S for broadcast; twice
//   reduce_scatter                    reads slice r of all inputs, S, writes S / n; twice
// Foreign memory (outside of shared HBM) passes through the rank's stage, twice per piece of at most 2 MiB.
// Each element is reduced by one rank, in rank order: results are bitwise equal on all ranks and from run to run.
//
// Every other operation starts with an announcement and a barrier, after which each rank compares signatures, so that
// ranks that disagree find out before anything moves. As an Engine's collectives, they belong to one thread at a time.

#include <vector>

#include "distributed/shm/communicator.h"
#include "distributed/shm/posts.h"

namespace cann::hccl {

class Collectives {
 public:
  explicit Collectives(Communicator& communicator)
      : comm_(communicator), block_(communicator.block()), posts_(communicator, operation_) {}

  // `to_root_only`: only call.root's data is written.
  void all_reduce(const Call& call, Span data, bool to_root_only);
  void broadcast(const Call& call, Span data);
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output);

  // What this rank takes from region `index` of a rank's contribution.
  struct Want {
    Span to;
    int from;
    size_t index;
  };
  // Everything that moves without being changed: ranks announce `contribution` and take what they want of the others'.
  // `bytes` is the size all ranks must agree on, 0 where it is free.
  void exchange(const Call& call, const std::vector<Span>& contribution, const std::vector<Want>& wants,
                uint64_t bytes);

 private:
  // Says what this rank brings, meets the others, and compares what they say. Contents that fit go inline if
  // `may_inline`.
  void announce(const Call& call, const std::vector<Span>& contribution, uint64_t bytes, bool may_inline);
  void check(const Call& call, const Signature& mine, int rank) const;
  // Announced by `rank` for the current operation; sizes are checked by region().
  const Announcement& theirs(int rank) const { return block_.announcement(rank, operation_); }
  Region region(const Call& call, int rank, size_t index, uint64_t expected_bytes) const;
  // Address of [begin, end) of a region that is inline or in HBM.
  std::byte* address(int rank, const Region& region, Where where, uint64_t begin, uint64_t end) const;
  // Bytes of each region that fit on a stage at a time, by the number of regions.
  static size_t piece_of(size_t regions);
  // How many pieces the longest staged region of any rank has; 0 if nothing is staged.
  size_t pieces() const;
  bool everything_is(Where where) const;
  // Copies piece `piece` of what this rank stages onto its stage.
  void stage_piece(const std::vector<Span>& contribution, size_t piece) const;
  void take(const Call& call, const Want& want, size_t piece) const;

  void reduce_inline(const Call& call, Span data);
  void reduce_posted(const Call& call, Span data);
  void reduce_direct(const Call& call, Span data, bool to_root_only);
  void reduce_staged(const Call& call, Span data, bool to_root_only);
  // Reduces this rank's slice of `count` elements at buffers[r] of every rank r into that slice of `outs`.
  void reduce_slice(const Call& call, const std::vector<std::byte*>& buffers, bool to_root_only, size_t count) const;
  std::vector<double> factors() const;

  Communicator& comm_;
  const ControlBlock& block_;
  uint64_t operation_ = 0;  // announced last
  Posts posts_;
};

}  // namespace cann::hccl
