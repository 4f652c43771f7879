#include "distributed/gloo_mesh.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "distributed/wait_meter.h"

namespace cann::hccl {
namespace {

// Gloo tags are non-negative 32-bit integers: the kind of message in the upper bits, its own number below.
enum class TagKind : int { kUser = 0, kUserContents = 1, kCollective = 2, kCollectiveContents = 3, kNobody = 4 };
constexpr int kTagBits = 28;
constexpr int tag_of(TagKind kind, uint32_t number) {
  return (static_cast<int>(kind) << kTagBits) | static_cast<int>(number & ((1u << kTagBits) - 1));
}

// Tag of the contents that follow `header`. In a collective both ends derive it from what they expect, so the receive
// can be posted before the header is there, and contents of another size never meet it. A point-to-point receive learns
// it from the header: with any-source receives, only the sender knows which message meets which receive.
int contents_tag(const Header& header) {
  if (header.round == 0) return tag_of(TagKind::kUserContents, header.message_id);
  uint64_t mixed = header.round * 0x9E3779B97F4A7C15u ^ header.bytes * 0xC2B2AE3D27D4EB4Fu;
  mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93u;
  return tag_of(TagKind::kCollectiveContents, static_cast<uint32_t>(mixed >> 32));
}

bool fits_inline(const Header& header) { return header.bytes <= (header.round == 0 ? kUserInline : kCollectiveInline); }

std::vector<at::Tensor> as_tensor(Span span) {
  return {at::from_blob(span.data, {static_cast<int64_t>(span.bytes)}, at::TensorOptions().dtype(at::kByte))};
}

using Kind = EngineError::Kind;

std::string describe(const Header& header) {
  std::string text = fmt::format("{} #{} ({} bytes of {}", op_name(header.op), header.sequence, header.bytes,
                                 name_of(static_cast<DataType>(header.dtype)));
  if (header.reduction != 0) text += fmt::format(", {}", name_of(static_cast<Reduction>(header.reduction)));
  if (header.root >= 0) text += fmt::format(", root {}", header.root);
  if (header.total > 0) text += fmt::format(", {} in all", header.total);
  return text + ")";
}

}  // namespace

class GlooMesh::SendTransfer final : public Transfer {
 public:
  SendTransfer(GlooMesh& mesh, const Call& call, Message message)
      : mesh_(mesh), call_(call), message_(std::move(message)) {}
  void wait() override {
    mesh_.or_abort([this] {
      for (const auto& work : message_.works) mesh_.wait(*work, call_, message_.peer);
    });
  }
  int source() const override { return -1; }

 private:
  GlooMesh& mesh_;
  Call call_;
  Message message_;
};

class GlooMesh::RecvTransfer final : public Transfer {
 public:
  RecvTransfer(GlooMesh& mesh, const Call& call, Span data, Message message)
      : mesh_(mesh), call_(call), data_(data), message_(std::move(message)) {}
  void wait() override {
    mesh_.or_abort([this] {
      const Header header = mesh_.receive(message_, call_, data_, /*round=*/0);
      if (fits_inline(header)) return;
      message_.works.push_back(mesh_.post_receive(data_, message_.peer, contents_tag(header)));
      mesh_.wait(*message_.works.back(), call_, message_.peer);
    });
  }
  int source() const override { return message_.peer; }

 private:
  GlooMesh& mesh_;
  Call call_;
  Span data_;
  Message message_;
};

GlooMesh::GlooMesh(c10::intrusive_ptr<c10d::Backend> gloo)
    : gloo_(std::move(gloo)),
      rank_(gloo_->getRank()),
      size_(gloo_->getSize()),
      mailboxes_(static_cast<size_t>(size_)),
      next_message_id_(static_cast<size_t>(size_), 0),
      talked_to_(static_cast<size_t>(size_), false) {}

GlooMesh::~GlooMesh() = default;

Header GlooMesh::header_for(const Call& call, size_t bytes, uint64_t round) const {
  Header header{};
  header.sequence = call.sequence;
  header.round = round;
  header.bytes = bytes;
  header.total = call.bytes;
  header.factor = call.factor;
  header.root = call.root;
  header.op = call.op;
  header.dtype = static_cast<uint8_t>(call.dtype);
  header.reduction = static_cast<uint8_t>(call.reduction);
  header.layout = call.layout;
  return header;
}

void GlooMesh::post_message(Message& message, Header header, Span data, int tag) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
    header.message_id = next_message_id_[static_cast<size_t>(message.peer)]++;
    talked_to_[static_cast<size_t>(message.peer)] = true;
  }
  const size_t carried = fits_inline(header) ? data.bytes : 0;
  const size_t length = sizeof(Header) + carried;
  if (message.buffer.size() < length) message.buffer.resize(length);
  std::memcpy(message.buffer.data(), &header, sizeof(Header));
  if (carried > 0) std::memcpy(message.buffer.data() + sizeof(Header), data.data, carried);
  try {
    auto transfer = as_tensor({message.buffer.data(), length});
    message.works.push_back(gloo_->send(transfer, message.peer, tag));
    if (!fits_inline(header)) {
      auto contents = as_tensor(data);
      message.works.push_back(gloo_->send(contents, message.peer, contents_tag(header)));
    }
  } catch (const std::exception& error) {
    throw EngineError(Kind::kRemote, fmt::format("sending to rank {} failed: {}", message.peer, error.what()));
  }
}

GlooMesh::WorkPtr GlooMesh::post_receive(Span data, int peer, int tag) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
  }
  auto tensor = as_tensor(data);
  try {
    return peer < 0 ? gloo_->recvAnysource(tensor, tag) : gloo_->recv(tensor, peer, tag);
  } catch (const std::exception& error) {
    throw EngineError(Kind::kRemote, fmt::format("receiving from rank {} failed: {}", peer, error.what()));
  }
}

void GlooMesh::post_receive(Message& message, size_t room, int tag) {
  message.buffer.resize(sizeof(Header) + room);
  message.works.assign(1, post_receive({message.buffer.data(), message.buffer.size()}, message.peer, tag));
}

void GlooMesh::wait(c10d::Work& work, const Call& call, int peer) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
    waited_for_.insert(&work);
  }
  bool done = false;
  std::string failure;
  try {
    done = work.wait(call.deadline.remaining());
  } catch (const std::exception& error) {
    failure = error.what();
  }
  std::lock_guard lock(mutex_);
  waited_for_.erase(&work);
  if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
  if (done) return;
  const std::string who = peer < 0 ? "any rank" : fmt::format("rank {}", peer);
  if (call.deadline.expired()) throw EngineError(Kind::kTimeout, fmt::format("no answer from {}", who));
  throw EngineError(Kind::kRemote, fmt::format("the connection to {} is lost: {}", who, failure));
}

void GlooMesh::check(const Header& theirs, const Call& call, const Header& mine, int peer) const {
  if (theirs.op == kLeaving && call.op != kLeaving) {
    throw EngineError(Kind::kRemote, fmt::format("rank {} has left the group", peer));
  }
  // The two ends of a transfer have different names for it.
  const bool same_op = theirs.op == mine.op || is_transfer(mine.op);
  const bool same = same_op && theirs.dtype == mine.dtype && theirs.reduction == mine.reduction &&
                    theirs.root == mine.root && theirs.layout == mine.layout && theirs.bytes == mine.bytes &&
                    theirs.total == mine.total;
  if (same && theirs.round == mine.round) return;
  std::string text =
      fmt::format("rank {} is in {}, but rank {} says it is in {}", rank_, describe(mine), peer, describe(theirs));
  if (same)
    text += fmt::format("; it is at step {} of the group's communication, this one at {}", theirs.round, mine.round);
  if (theirs.layout != mine.layout) text += " in another memory format";
  throw EngineError(Kind::kMismatch, text);
}

Header GlooMesh::receive(Message& message, const Call& call, Span data, uint64_t round) {
  c10d::Work& work = *message.works[0];
  {
    const WaitMeter* meter = WaitMeter::current();
    const Waiting waiting(meter != nullptr && (data.bytes == 0 || !meter->synchronized()));
    wait(work, call, message.peer);
  }
  if (message.peer < 0) message.peer = work.sourceRank();
  {
    std::lock_guard lock(mutex_);
    talked_to_[static_cast<size_t>(message.peer)] = true;
  }
  Header header;
  std::memcpy(&header, message.buffer.data(), sizeof(Header));
  check(header, call, header_for(call, data.bytes, round), message.peer);
  if (data.bytes > 0 && fits_inline(header)) {
    std::memcpy(data.data, message.buffer.data() + sizeof(Header), data.bytes);
  }
  return header;
}

void GlooMesh::Mailbox::fill(GlooMesh& mesh, int peer, Message recycled) {
  while (posted.size() < std::max<size_t>(expected, 1)) {
    recycled.peer = peer;
    mesh.post_receive(recycled, kCollectiveInline, tag_of(TagKind::kCollective, 0));
    posted.push_back(std::exchange(recycled, {}));
  }
}

// What has been posted for a round, and the reading of what comes.
class GlooMesh::MeshRound final : public Round {
 public:
  MeshRound(GlooMesh& mesh, const Call& call, const Messages& incoming)
      : mesh_(mesh),
        call_(call),
        number_(++mesh.round_),
        incoming_(incoming),
        outbox_(static_cast<size_t>(mesh.size_)) {}

  void post(const Messages& outgoing) {
    for_each_peer(incoming_, 1, [&](int peer, Span) {
      Mailbox& mailbox = mesh_.mailboxes_[static_cast<size_t>(peer)];
      ++mailbox.expected;
      mailbox.fill(mesh_, peer, {});
    });
    // Each rank sends to another one first, namely to the one that reads from it first.
    for_each_peer(outgoing, -1, [&](int peer, Span span) {
      Message& message = outbox_[static_cast<size_t>(peer)];
      message.peer = peer;
      mesh_.post_message(message, mesh_.header_for(call_, span.bytes, number_), span, tag_of(TagKind::kCollective, 0));
    });
    for_each_peer(incoming_, 1, [&](int peer, Span span) {
      const Header expected = mesh_.header_for(call_, span.bytes, number_);
      if (!fits_inline(expected)) {
        contents_.emplace_back(peer, mesh_.post_receive(span, peer, contents_tag(expected)));
      }
    });
  }

  std::vector<double> finish() override {
    std::vector<double> factors(static_cast<size_t>(mesh_.size_), call_.factor);
    mesh_.or_abort([&] {
      for_each_peer(incoming_, 1, [&](int peer, Span span) { factors[static_cast<size_t>(peer)] = read(peer, span); });
      ranks_have_met();
      for (const auto& [peer, work] : contents_) mesh_.wait(*work, call_, peer);
      for (const Message& message : outbox_) {
        for (const WorkPtr& work : message.works) mesh_.wait(*work, call_, message.peer);
      }
    });
    return factors;
  }

 private:
  // From the next rank on upwards, or from the one before on downwards.
  template <typename Body>
  void for_each_peer(const Messages& messages, int direction, Body&& body) const {
    for (int step = 1; step < mesh_.size_; ++step) {
      const int peer = (mesh_.rank_ + mesh_.size_ + direction * step) % mesh_.size_;
      if (const auto& span = messages[static_cast<size_t>(peer)]) body(peer, *span);
    }
  }

  // Takes the oldest message of `peer`, and gives its factor; a receive for another one takes its place.
  double read(int peer, Span span) {
    Mailbox& mailbox = mesh_.mailboxes_[static_cast<size_t>(peer)];
    const Header theirs = mesh_.receive(mailbox.posted.front(), call_, span, number_);
    Message emptied = std::move(mailbox.posted.front());
    mailbox.posted.pop_front();
    --mailbox.expected;
    try {
      mailbox.fill(mesh_, peer, std::move(emptied));
    } catch (const EngineError&) {
      // The peer has had its last say and is gone, which does not spoil this round; the next one will report it.
    }
    return theirs.factor;
  }

  GlooMesh& mesh_;
  const Call call_;
  const uint64_t number_;
  const Messages incoming_;
  std::vector<Message> outbox_;
  std::vector<std::pair<int, WorkPtr>> contents_;
};

std::unique_ptr<Round> GlooMesh::start(const Call& call, const Messages& outgoing, const Messages& incoming) {
  auto round = std::make_unique<MeshRound>(*this, call, incoming);
  or_abort([&] { round->post(outgoing); });
  return round;
}

std::unique_ptr<Transfer> GlooMesh::send(const Call& call, Span data, int peer, int tag) {
  Message message;
  message.peer = peer;
  post_message(message, header_for(call, data.bytes, /*round=*/0), data,
               tag_of(TagKind::kUser, static_cast<uint32_t>(tag)));
  return std::make_unique<SendTransfer>(*this, call, std::move(message));
}

std::unique_ptr<Transfer> GlooMesh::recv(const Call& call, Span data, int peer, int tag) {
  Message message;
  message.peer = peer;
  post_receive(message, kUserInline, tag_of(TagKind::kUser, static_cast<uint32_t>(tag)));
  return std::make_unique<RecvTransfer>(*this, call, data, std::move(message));
}

bool GlooMesh::talked_to(int peer) const {
  std::lock_guard lock(mutex_);
  return talked_to_[static_cast<size_t>(peer)];
}

bool GlooMesh::aborted() const {
  std::lock_guard lock(mutex_);
  return abort_reason_.has_value();
}

void GlooMesh::abort(const std::string& reason) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) return;
    abort_reason_ = reason;
    for (c10d::Work* work : waited_for_) work->abort();
  }
  // Gloo has no call that closes its connections, and peers would wait for their own timeouts. A receive that times out
  // does close them, and the peers then fail at once; so one is made that nobody will answer. Where a peer has closed
  // its connection already the receive fails without that, and the next peer is tried.
  for (int step = 1; step < size_; ++step) {
    try {
      std::byte nothing{};
      auto message = as_tensor({&nothing, 1});
      gloo_->recv(message, (rank_ + step) % size_, tag_of(TagKind::kNobody, 0))->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      // expected: the time-out, or connections that are closed already
    }
  }
}

}  // namespace cann::hccl
