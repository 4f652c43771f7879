#pragma once
// Operations in which contents of at most kPostedBytes flow one way: who gives them does not wait for who takes them.
//
// Every rank has a post box: a ring of records, and a ring of room for contents. In a posted operation each rank adds a
// record to its own box, with contents if it gives any, and who takes waits for the record of the giver alone. A giver
// is done once its contents lie in its box, and gets ahead of the slowest rank by up to kPosts operations or
// kPostBoxBytes; then it waits for room. So a broadcast costs its root one copy, and ranks that share a core need not
// take turns for each one.
//
// As nobody meets, ranks that disagree learn of it by what follows: who takes compares its record, and its history of
// posted operations, with the giver's; who gives is told when the other gives up, or when they meet the next time.
// Belongs to one thread at a time, as Collectives.

#include <cstdint>
#include <deque>

#include "distributed/shm/communicator.h"

namespace cann::hccl {

class Posts {
 public:
  // `announced` is how many operations this rank has announced, kept up to date by the caller, who outlives this.
  Posts(Communicator& communicator, const uint64_t& announced)
      : comm_(communicator), block_(communicator.block()), announced_(announced) {}

  // Begins the next operation: copies `contents`, empty where this rank gives none, and publishes its record. Blocks
  // while there is no room. `bytes` is the size all ranks must agree on. As take(), raises EngineError.
  void begin(const Call& call, uint64_t bytes, Span contents);

  struct Given {
    const std::byte* contents;
    double factor;
  };
  // Waits for the `bytes` that `rank` gives to the operation begun last. Valid until end().
  Given take(const Call& call, int rank, uint64_t bytes);

  // This rank needs no more of the operation.
  void end();

  // Equal on ranks that have done the same posted operations.
  uint64_t history() const { return history_; }
  // Raises kMismatch if `rank`, which this one has met in `call`, has another history.
  void check_history(const Call& call, int rank, uint64_t theirs) const;

 private:
  Post& record(int rank, uint32_t number) const { return block_.post_box(rank).posts[number % kPosts]; }
  // Where `bytes` in one piece would go: a position that counts on from round to round.
  uint64_t place_for(uint64_t bytes) const;
  // Whether record and contents of operation `number_` fit; looks how far the others are if they did not.
  bool has_room(uint64_t bytes);
  bool fits(uint64_t bytes);
  void wait_for_room(const Call& call, uint64_t bytes);

  struct Used {
    uint32_t number;
    uint64_t begin;
  };

  Communicator& comm_;
  const ControlBlock& block_;
  const uint64_t& announced_;
  uint32_t number_ = 0;        // of the operation begun last. Numbers wrap
  uint32_t taken_by_all_ = 0;  // when last looked
  uint64_t history_ = 0;
  uint64_t head_ = 0;      // where contents end
  std::deque<Used> used_;  // contents that somebody may still read, oldest first
};

}  // namespace cann::hccl
