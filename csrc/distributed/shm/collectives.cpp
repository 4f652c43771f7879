#include "distributed/shm/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "distributed/reduction.h"
#include "distributed/shm/signature.h"
#include "distributed/wait_meter.h"
#include "kernels/kernels.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;

// From this size on a copy or result is larger than what stays in a core's cache until it is read.
constexpr size_t kStreamBytes = size_t{1} << 20;
// Slices of a reduction begin at cache lines, so that no two ranks write to the same one.
constexpr size_t kCacheLine = 64;

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (bytes >= kStreamBytes) {
    kernels::kernels().reduction->stream_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

uint64_t total_bytes(const std::vector<Span>& spans) {
  uint64_t total = 0;
  for (const Span& span : spans) total += span.bytes;
  return total;
}

}  // namespace

void Collectives::announce(const Call& call, const std::vector<Span>& contribution, uint64_t bytes, bool may_inline) {
  ++operation_;
  Announcement& mine = block_.announcement(comm_.rank(), operation_);
  mine.signature = signature_of(call, bytes);
  mine.history = posts_.history();
  mine.regions = static_cast<uint32_t>(contribution.size());
  Region* regions = mine.region_list();
  if (may_inline && total_bytes(contribution) <= kInlineBytes) {
    mine.where = Where::kInline;
    std::byte* payload = block_.payload(comm_.rank(), operation_);
    uint64_t offset = 0;
    for (size_t i = 0; i < contribution.size(); ++i) {
      regions[i] = {offset, contribution[i].bytes};
      if (contribution[i].bytes > 0) std::memcpy(payload + offset, contribution[i].data, contribution[i].bytes);
      offset += contribution[i].bytes;
    }
  } else {
    mine.where = Where::kHbm;
    for (size_t i = 0; i < contribution.size(); ++i) {
      const auto offset = contribution[i].bytes > 0 ? comm_.hbm_offset(contribution[i]) : 0;
      if (!offset) mine.where = Where::kStage;
      regions[i] = {offset.value_or(0), contribution[i].bytes};
    }
    if (mine.where == Where::kStage) stage_piece(contribution, 0);
  }
  const Signature signature = mine.signature;
  comm_.meet(call);
  ranks_have_met();
  for (int rank = 0; rank < comm_.size(); ++rank) check(call, signature, rank);
}

void Collectives::check(const Call& call, const Signature& mine, int rank) const {
  const Announcement& announced = theirs(rank);
  if (!agree(mine, announced.signature)) {
    throw EngineError(Kind::kMismatch, disagreement(comm_.rank(), mine, rank, announced.signature));
  }
  posts_.check_history(call, rank, announced.history);
  if (announced.regions <= static_cast<uint32_t>(comm_.size()) && announced.where <= Where::kStage) return;
  throw EngineError(Kind::kRemote, fmt::format("rank {}'s announcement of {} is damaged", rank, op_name(call.op)));
}

Region Collectives::region(const Call& call, int rank, size_t index, uint64_t expected_bytes) const {
  Announcement& announced = block_.announcement(rank, operation_);
  const bool exists = index < announced.regions;
  const Region region = exists ? announced.region_list()[index] : Region{0, 0};
  if (exists && region.bytes == expected_bytes) return region;
  throw EngineError(Kind::kMismatch,
                    fmt::format("in {} #{} rank {} gives {} bytes where rank {} expects {}", op_name(call.op),
                                call.sequence, rank, region.bytes, comm_.rank(), expected_bytes));
}

std::byte* Collectives::address(int rank, const Region& region, Where where, uint64_t begin, uint64_t end) const {
  if (begin == end) return nullptr;
  if (where == Where::kHbm) return comm_.hbm(rank, region.offset, region.bytes) + begin;
  if (region.offset > kInlineBytes || region.bytes > kInlineBytes - region.offset) {
    throw EngineError(Kind::kRemote, fmt::format("rank {}'s announcement is damaged", rank));
  }
  return block_.payload(rank, operation_) + region.offset + begin;
}

size_t Collectives::piece_of(size_t regions) {
  return kStageBytes / std::max<size_t>(regions, 1) / kCacheLine * kCacheLine;
}

size_t Collectives::pieces() const {
  size_t longest = 0;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    Announcement& announced = block_.announcement(rank, operation_);
    if (announced.where != Where::kStage) continue;
    const size_t piece = piece_of(announced.regions);
    for (uint32_t i = 0; i < announced.regions; ++i) {
      longest = std::max<size_t>(longest, (announced.region_list()[i].bytes + piece - 1) / piece);
    }
  }
  return longest;
}

bool Collectives::everything_is(Where where) const {
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (theirs(rank).where != where) return false;
  }
  return true;
}

void Collectives::stage_piece(const std::vector<Span>& contribution, size_t piece) const {
  const size_t room = piece_of(contribution.size());
  std::byte* stage = block_.stage(comm_.rank());
  for (size_t i = 0; i < contribution.size(); ++i) {
    const size_t begin = std::min(piece * room, contribution[i].bytes);
    const size_t end = std::min(begin + room, contribution[i].bytes);
    if (end > begin) std::memcpy(stage + i * room, contribution[i].data + begin, end - begin);
  }
}

// ---- moving ---------------------------------------------------------------------------------------------------------

void Collectives::take(const Call& call, const Want& want, size_t piece) const {
  const Announcement& announced = theirs(want.from);
  const Region from = region(call, want.from, want.index, want.to.bytes);
  if (announced.where != Where::kStage) {
    if (piece == 0) copy_bytes(want.to.data, address(want.from, from, announced.where, 0, from.bytes), from.bytes);
    return;
  }
  const size_t room = piece_of(announced.regions);
  const size_t begin = std::min<size_t>(piece * room, from.bytes);
  const size_t end = std::min<size_t>(begin + room, from.bytes);
  copy_bytes(want.to.data + begin, block_.stage(want.from) + want.index * room, end - begin);
}

void Collectives::exchange(const Call& call, const std::vector<Span>& contribution, const std::vector<Want>& wants,
                           uint64_t bytes) {
  announce(call, contribution, bytes, /*may_inline=*/true);
  const bool staging = theirs(comm_.rank()).where == Where::kStage;
  const size_t count = std::max<size_t>(pieces(), 1);
  for (size_t piece = 0; piece < count; ++piece) {
    if (piece > 0) {
      if (staging) stage_piece(contribution, piece);
      comm_.meet(call);
    }
    for (const Want& want : wants) take(call, want, piece);
    // Until all have read, nobody may change what they read.
    if (!everything_is(Where::kInline)) comm_.meet(call);
  }
}

void Collectives::broadcast(const Call& call, Span data) {
  const bool gives = comm_.rank() == call.root;
  const auto contribution = gives ? std::vector<Span>{data} : std::vector<Span>{};
  if (data.bytes > kPostedBytes) {
    return exchange(call, contribution, gives ? std::vector<Want>{} : std::vector<Want>{{data, call.root, 0}},
                    data.bytes);
  }
  posts_.begin(call, data.bytes, gives ? data : Span{});
  if (!gives) copy_bytes(data.data, posts_.take(call, call.root, data.bytes).contents, data.bytes);
  posts_.end();
}

// ---- reducing -------------------------------------------------------------------------------------------------------

std::vector<double> Collectives::factors() const {
  std::vector<double> result;
  for (int rank = 0; rank < comm_.size(); ++rank) result.push_back(theirs(rank).signature.factor);
  return result;
}

void Collectives::all_reduce(const Call& call, Span data, bool to_root_only) {
  // All ranks decide alike, as sizes must agree.
  const bool small = data.bytes <= kInlineBytes && data.bytes * static_cast<size_t>(comm_.size()) <= 8 * kInlineBytes;
  if (small && to_root_only) return reduce_posted(call, data);
  announce(call, {data}, data.bytes, small);
  if (small) {
    reduce_inline(call, data);
  } else if (everything_is(Where::kHbm)) {
    reduce_direct(call, data, to_root_only);
  } else {
    reduce_staged(call, data, to_root_only);
  }
}

void Collectives::reduce_posted(const Call& call, Span data) {
  const bool takes = comm_.rank() == call.root;
  posts_.begin(call, data.bytes, takes ? Span{} : data);
  if (takes) {
    std::vector<const std::byte*> parts;
    std::vector<double> factors;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const bool own = rank == call.root;
      const Posts::Given given = own ? Posts::Given{data.data, call.factor} : posts_.take(call, rank, data.bytes);
      parts.push_back(given.contents);
      factors.push_back(given.factor);
    }
    reduce_in_order(call.reduction, call.dtype, parts, factors, {data.data}, data.bytes / element_bytes(call.dtype));
  }
  posts_.end();
}

void Collectives::reduce_inline(const Call& call, Span data) {
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    parts.push_back(address(rank, region(call, rank, 0, data.bytes), Where::kInline, 0, data.bytes));
  }
  reduce_in_order(call.reduction, call.dtype, parts, factors(), {data.data}, data.bytes / element_bytes(call.dtype));
}

void Collectives::reduce_slice(const Call& call, const std::vector<std::byte*>& buffers, bool to_root_only,
                               size_t count) const {
  const size_t item = element_bytes(call.dtype);
  const Slice slice = slice_of(count, comm_.rank(), comm_.size(), kCacheLine / item);
  if (slice.begin == slice.end) return;
  std::vector<std::byte*> at;
  for (std::byte* buffer : buffers) at.push_back(buffer + slice.begin * item);
  const std::vector<const std::byte*> parts(at.begin(), at.end());
  const auto outs = to_root_only ? std::vector<std::byte*>{at[static_cast<size_t>(call.root)]} : at;
  reduce_in_order(call.reduction, call.dtype, parts, factors(), outs, slice.end - slice.begin,
                  count * item >= kStreamBytes);
}

void Collectives::reduce_direct(const Call& call, Span data, bool to_root_only) {
  std::vector<std::byte*> buffers;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    buffers.push_back(address(rank, region(call, rank, 0, data.bytes), Where::kHbm, 0, data.bytes));
  }
  reduce_slice(call, buffers, to_root_only, data.bytes / element_bytes(call.dtype));
  comm_.meet(call);
}

void Collectives::reduce_staged(const Call& call, Span data, bool to_root_only) {
  const size_t room = piece_of(1);
  std::vector<std::byte*> stages;
  for (int rank = 0; rank < comm_.size(); ++rank) stages.push_back(block_.stage(rank));
  std::byte* mine = stages[static_cast<size_t>(comm_.rank())];
  const bool writes = !to_root_only || comm_.rank() == call.root;
  const bool staged_first = theirs(comm_.rank()).where == Where::kStage;  // by announce()
  for (size_t begin = 0; begin < data.bytes; begin += room) {
    const size_t length = std::min(room, data.bytes - begin);
    if (begin > 0 || !staged_first) std::memcpy(mine, data.data + begin, length);
    comm_.meet(call);
    reduce_slice(call, stages, to_root_only, length / element_bytes(call.dtype));
    comm_.meet(call);
    if (writes) std::memcpy(data.data + begin, mine, length);
  }
}

void Collectives::reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  announce(call, inputs, 0, /*may_inline=*/true);
  const auto me = static_cast<size_t>(comm_.rank());
  const size_t item = element_bytes(call.dtype);
  const bool staging = theirs(comm_.rank()).where == Where::kStage;
  const size_t staged_pieces = pieces();
  const size_t room = staged_pieces > 0 ? piece_of(inputs.size()) : std::numeric_limits<size_t>::max();
  for (size_t piece = 0; piece < std::max<size_t>(staged_pieces, 1); ++piece) {
    if (piece > 0) {
      if (staging) stage_piece(inputs, piece);
      comm_.meet(call);
    }
    const size_t begin = piece == 0 ? 0 : std::min(piece * room, output.bytes);
    const size_t end = output.bytes - begin > room ? begin + room : output.bytes;
    std::vector<const std::byte*> parts;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const Region from = region(call, rank, me, output.bytes);
      const Where where = theirs(rank).where;
      parts.push_back(where == Where::kStage ? block_.stage(rank) + me * room : address(rank, from, where, begin, end));
    }
    if (end > begin) {
      reduce_in_order(call.reduction, call.dtype, parts, factors(), {output.data + begin}, (end - begin) / item,
                      output.bytes >= kStreamBytes);
    }
    if (!everything_is(Where::kInline)) comm_.meet(call);
  }
}

}  // namespace cann::hccl
