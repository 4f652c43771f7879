#include "distributed/shm/control_block.h"

namespace cann::hccl {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
constexpr size_t payload_begin(size_t ranks) {
  return round_up(sizeof(Announcement) + ranks * sizeof(Region), alignof(Announcement));
}

}  // namespace

size_t ControlBlock::announcement_bytes() const { return round_up(payload_begin(ranks_) + kInlineBytes, kPage); }
size_t ControlBlock::announcements_begin() const {
  return round_up(sizeof(Control) + ranks_ * sizeof(RankState), kPage);
}
size_t ControlBlock::post_boxes_begin() const { return announcements_begin() + 2 * ranks_ * announcement_bytes(); }
size_t ControlBlock::stages_begin() const { return round_up(post_boxes_begin() + ranks_ * sizeof(PostBox), kPage); }
size_t ControlBlock::mailboxes_begin() const { return stages_begin() + ranks_ * kStageBytes; }

size_t ControlBlock::bytes_for(int ranks) {
  const ControlBlock block(nullptr, ranks);
  return round_up(block.mailboxes_begin() + block.ranks_ * block.ranks_ * sizeof(Mailbox), kPage);
}

Control& ControlBlock::control() const { return *reinterpret_cast<Control*>(memory_); }

RankState& ControlBlock::state(int rank) const { return reinterpret_cast<RankState*>(memory_ + sizeof(Control))[rank]; }

Announcement& ControlBlock::announcement(int rank, uint64_t operation) const {
  const size_t index = 2 * static_cast<size_t>(rank) + operation % 2;
  return *reinterpret_cast<Announcement*>(memory_ + announcements_begin() + index * announcement_bytes());
}

std::byte* ControlBlock::payload(int rank, uint64_t operation) const {
  return reinterpret_cast<std::byte*>(&announcement(rank, operation)) + payload_begin(ranks_);
}

PostBox& ControlBlock::post_box(int rank) const {
  return reinterpret_cast<PostBox*>(memory_ + post_boxes_begin())[rank];
}

std::byte* ControlBlock::stage(int rank) const {
  return memory_ + stages_begin() + static_cast<size_t>(rank) * kStageBytes;
}

Mailbox& ControlBlock::mailbox(int from, int to) const {
  const size_t index = static_cast<size_t>(from) * ranks_ + static_cast<size_t>(to);
  return reinterpret_cast<Mailbox*>(memory_ + mailboxes_begin())[index];
}

}  // namespace cann::hccl
