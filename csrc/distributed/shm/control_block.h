#pragma once
// What the ranks of a communicator share: one block of memory, laid out here.
//
//   Control                          the barrier's words and the reason of an abort
//   RankState[n]                     how far each rank is, and its bell
//   Announcement[n][2]               what each rank brings to the current collective, to be read by all
//   PostBox[n]                       what a rank gives without waiting for who takes it, see posts.h
//   stage[n]                         room for contents that are not in shared HBM
//   Mailbox[n][n]                    messages from a rank to another
//
// Announcements are double-buffered by the parity of the operation: a rank is at most one operation ahead of another,
// since every operation begins with a barrier. Pages that are not touched cost nothing. Nothing in the block is
// trusted: who reads a size or an offset checks it against what it knows.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "distributed/engine.h"
#include "distributed/shm/waiter.h"

namespace cann::hccl {

// A rank's part in a collective up to this size travels inside its announcement: one barrier instead of two.
inline constexpr size_t kInlineBytes = 16 * 1024;
// Foreign memory passes through the stage in pieces.
inline constexpr size_t kStageBytes = size_t{2} << 20;
// A message up to this size is copied into the mailbox, and its sender is done once all of it lies there; of longer ones
// the receiver is told the place in shared HBM, or gets fragment after fragment.
inline constexpr size_t kFragmentBytes = 16 * 1024;
inline constexpr int kFragments = 8;
inline constexpr size_t kEagerBytes = kFragments * kFragmentBytes;
inline constexpr int kTickets = 32;

// Contents up to this size are posted; a box holds several of them, and so many records.
inline constexpr size_t kPostedBytes = 128 * 1024;
inline constexpr size_t kPostBoxBytes = 4 * kPostedBytes;
inline constexpr uint32_t kPosts = 64;

inline constexpr size_t kReasonBytes = 1000;

struct alignas(64) Control {
  Signal generation;  // of the barrier
  alignas(64) std::atomic<uint32_t> arrivals{0};
  alignas(64) std::atomic<uint32_t> abort_state{0};  // 0: none, 1: being written, 2: below
  int32_t abort_rank = -1;
  char abort_reason[kReasonBytes] = {};
};

struct alignas(64) RankState {
  std::atomic<uint32_t> step{0};        // barriers arrived at
  std::atomic<uint32_t> left{0};        // 1: takes part no more
  Signal bell;                          // a message came, was taken, or made room
  Signal posted;                        // number of the last posted operation it has begun
  std::atomic<uint32_t> taken{0};       // and of the last one it needs nothing more of
  std::atomic<uint32_t> wants_room{0};  // 1: ring the bell after `taken`
};

// An operation as a rank understands it. See agree().
struct Signature {
  uint64_t sequence;
  uint64_t bytes;
  double factor;
  int32_t root;
  uint8_t op;
  uint8_t dtype;
  uint8_t reduction;
  uint8_t layout;
};

enum class Where : uint32_t { kInline, kHbm, kStage };

// A range of a rank's contribution: at `offset` in its payload, its shared HBM; unused on the stage.
struct Region {
  uint64_t offset;
  uint64_t bytes;
};

struct alignas(64) Announcement {
  Signature signature;
  uint64_t history;  // of posted operations
  Where where;
  uint32_t regions;  // that follow; then, at a multiple of 64 bytes, the payload
  Region* region_list() { return reinterpret_cast<Region*>(this + 1); }
};

struct alignas(64) Post {
  Signature signature;
  uint64_t history;  // before this operation
  uint64_t offset;   // of the contents
  uint64_t bytes;
  uint32_t number;
};

struct PostBox {
  Post posts[kPosts];  // operation n at n % kPosts
  std::byte contents[kPostBoxBytes];
};

struct alignas(64) Fragment {
  std::atomic<uint32_t> full{0};
  uint32_t bytes = 0;     // of the payload
  uint64_t total = 0;     // bytes of the message
  Signature signature{};  // meaningful in the first fragment of a message
  int32_t tag = 0;
  uint32_t ticket = 0;  // kTickets: contents follow here; else they are in the sender's HBM
  uint64_t offset = 0;
  alignas(64) std::byte payload[kFragmentBytes];
};

struct Mailbox {
  Fragment fragments[kFragments];
  // Of contents in the sender's HBM: 0 unused, 1 not read yet, 2 read.
  alignas(64) std::atomic<uint32_t> tickets[kTickets];
};

// Finds the parts of a block for `ranks` ranks. Does not own the memory, which must be zero at first.
class ControlBlock {
 public:
  static size_t bytes_for(int ranks);
  ControlBlock(std::byte* memory, int ranks) : memory_(memory), ranks_(static_cast<size_t>(ranks)) {}

  Control& control() const;
  RankState& state(int rank) const;
  Announcement& announcement(int rank, uint64_t operation) const;
  std::byte* payload(int rank, uint64_t operation) const;
  PostBox& post_box(int rank) const;
  std::byte* stage(int rank) const;
  Mailbox& mailbox(int from, int to) const;

 private:
  size_t announcement_bytes() const;
  size_t announcements_begin() const;
  size_t post_boxes_begin() const;
  size_t stages_begin() const;
  size_t mailboxes_begin() const;

  std::byte* memory_;
  size_t ranks_;
};

}  // namespace cann::hccl
