#include "distributed/shm/posts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "distributed/shm/signature.h"
#include "distributed/wait_meter.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;

bool reached(uint32_t number, uint32_t wanted) { return static_cast<int32_t>(number - wanted) >= 0; }

// A history with one more operation: mixes in what ranks must agree on.
uint64_t continued(uint64_t history, const Signature& signature) {
  const uint64_t kind = static_cast<uint64_t>(signature.op) << 24 | static_cast<uint64_t>(signature.dtype) << 16 |
                        static_cast<uint64_t>(signature.reduction) << 8 | signature.layout;
  for (const uint64_t word : {signature.bytes, static_cast<uint64_t>(signature.root), kind}) {
    history = (history ^ word) * 0x9E3779B97F4A7C15u + 1;  // odd, near 2^64 over the golden ratio: mixes upwards
    history ^= history >> 32;
  }
  return history;
}

}  // namespace

// ---- room -----------------------------------------------------------------------------------------------------------

uint64_t Posts::place_for(uint64_t bytes) const {
  const uint64_t left = kPostBoxBytes - head_ % kPostBoxBytes;
  return bytes <= left ? head_ : head_ + left;
}

bool Posts::fits(uint64_t bytes) {
  while (!used_.empty() && reached(taken_by_all_, used_.front().number)) used_.pop_front();
  if (!reached(taken_by_all_, number_ - kPosts)) return false;
  return used_.empty() || place_for(bytes) + bytes - used_.front().begin <= kPostBoxBytes;
}

bool Posts::has_room(uint64_t bytes) {
  if (fits(bytes)) return true;
  const uint32_t last = number_ - 1;
  uint32_t behind = 0;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const uint32_t taken = rank == comm_.rank() ? last : block_.state(rank).taken.load();
    if (!reached(taken, last)) behind = std::max(behind, last - taken);
  }
  taken_by_all_ = last - behind;
  return fits(bytes);
}

void Posts::wait_for_room(const Call& call, uint64_t bytes) {
  RankState& mine = block_.state(comm_.rank());
  const auto done = [&] { return has_room(bytes); };
  {
    const Waiting waiting;
    if (spin_until(done)) return;
  }
  // Before the others are looked at again: one of them sees this word, or its progress is seen here.
  mine.wants_room.store(1);
  comm_.wait(call, mine.bell, done, [&](int rank) {
    const uint32_t taken = block_.state(rank).taken.load();
    return !reached(taken, used_.empty() ? number_ - kPosts : used_.front().number);
  });
  mine.wants_room.store(0);
}

// ---- operations -----------------------------------------------------------------------------------------------------

void Posts::begin(const Call& call, uint64_t bytes, Span contents) {
  ++number_;
  const uint64_t room = (contents.bytes + alignof(Post) - 1) / alignof(Post) * alignof(Post);
  if (!has_room(room)) wait_for_room(call, room);
  const uint64_t place = place_for(room);
  Post& post = record(comm_.rank(), number_);
  post = {signature_of(call, bytes), history_, place % kPostBoxBytes, contents.bytes, number_};
  if (contents.bytes > 0) {
    std::memcpy(block_.post_box(comm_.rank()).contents + post.offset, contents.data, contents.bytes);
    used_.push_back({number_, head_});
    head_ = place + room;
  }
  history_ = continued(history_, post.signature);
  block_.state(comm_.rank()).posted.raise();
}

Posts::Given Posts::take(const Call& call, int rank, uint64_t bytes) {
  Signal& posted = block_.state(rank).posted;
  const auto has_posted = [&] { return reached(posted.value.load(std::memory_order_acquire), number_); };
  const auto done = [&] { return has_posted() || comm_.is_ahead(rank); };
  const bool came = [&] {
    const Waiting waiting;
    return spin_until(done);
  }();
  if (!came) comm_.wait(call, posted, done, [&](int missing) { return missing == rank && !has_posted(); });
  const Post& mine = record(comm_.rank(), number_);
  if (!has_posted()) {  // and never will: it waits for this rank to meet it
    const Signature theirs = block_.announcement(rank, announced_ + 1).signature;
    throw EngineError(Kind::kMismatch, disagreement(comm_.rank(), mine.signature, rank, theirs));
  }
  const Post post = record(rank, number_);
  if (!agree(mine.signature, post.signature)) {
    throw EngineError(Kind::kMismatch, disagreement(comm_.rank(), mine.signature, rank, post.signature));
  }
  if (post.history != mine.history) check_history(call, rank, post.history);
  if (post.number != number_ || post.bytes != bytes || bytes > kPostBoxBytes || post.offset > kPostBoxBytes - bytes) {
    throw EngineError(Kind::kRemote, fmt::format("rank {}'s record of {} is damaged", rank, op_name(call.op)));
  }
  return {block_.post_box(rank).contents + post.offset, post.signature.factor};
}

void Posts::end() {
  block_.state(comm_.rank()).taken.store(number_);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank != comm_.rank() && block_.state(rank).wants_room.load() != 0) block_.state(rank).bell.raise();
  }
}

void Posts::check_history(const Call& call, int rank, uint64_t theirs) const {
  if (theirs == history_) return;
  for (uint32_t number = number_ - kPosts + 1; reached(number_, number); ++number) {
    const Post& mine = record(comm_.rank(), number);
    const Post& other = record(rank, number);
    if (mine.number != number || other.number != number || agree(mine.signature, other.signature)) continue;
    throw EngineError(Kind::kMismatch, disagreement(comm_.rank(), mine.signature, rank, other.signature));
  }
  throw EngineError(Kind::kMismatch,
                    fmt::format("before {} #{} rank {} and rank {} have not done the same broadcasts and reductions",
                                op_name(call.op), call.sequence, comm_.rank(), rank));
}

}  // namespace cann::hccl
