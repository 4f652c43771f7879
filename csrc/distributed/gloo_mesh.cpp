#include "distributed/gloo_mesh.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "distributed/reduction.h"

namespace cann::hccl {
namespace {

// Gloo tags are non-negative 32-bit integers: the kind of message in the upper bits, its own number below.
enum class TagKind : int { kUser = 0, kContents = 1, kCollective = 2, kNobody = 3 };
constexpr int kTagBits = 28;
constexpr int tag_of(TagKind kind, uint32_t number) {
  return (static_cast<int>(kind) << kTagBits) | static_cast<int>(number & ((1u << kTagBits) - 1));
}

std::vector<at::Tensor> as_tensor(Span span) {
  return {at::from_blob(span.data, {static_cast<int64_t>(span.bytes)}, at::TensorOptions().dtype(at::kByte))};
}

using Kind = EngineError::Kind;

std::string describe(const Header& header) {
  if (header.op == kLeaving) return "that it leaves the group";
  std::string text = fmt::format("{} #{} of {} bytes of {}", c10d::opTypeToString(static_cast<c10d::OpType>(header.op)),
                                 header.sequence, header.bytes,
                                 c10::toString(static_cast<c10::ScalarType>(header.dtype)));
  if (header.reduction != 0) text += fmt::format(", {}", reduction_name(static_cast<Reduction>(header.reduction)));
  if (header.root >= 0) text += fmt::format(", root {}", header.root);
  return text;
}

}  // namespace

struct GlooMesh::Outgoing {
  std::vector<std::byte> message;
  Works works;  // after `message`: destroyed before it
};

struct GlooMesh::Incoming {
  int peer = -1;  // -1: any
  std::vector<std::byte> message = std::vector<std::byte>(kMessage);
  c10::intrusive_ptr<c10d::Work> work;
};

class GlooMesh::SendTransfer final : public Transfer {
 public:
  SendTransfer(GlooMesh& mesh, const Call& call, int peer, std::unique_ptr<Outgoing> message)
      : mesh_(mesh), call_(call), peer_(peer), message_(std::move(message)) {}
  void wait() override {
    mesh_.or_abort([this] {
      for (const auto& work : message_->works) mesh_.wait(*work, call_, peer_);
    });
  }
  int source() const override { return -1; }

 private:
  GlooMesh& mesh_;
  Call call_;
  int peer_;
  std::unique_ptr<Outgoing> message_;
};

class GlooMesh::RecvTransfer final : public Transfer {
 public:
  RecvTransfer(GlooMesh& mesh, const Call& call, Span data, std::unique_ptr<Incoming> message)
      : mesh_(mesh), call_(call), data_(data), message_(std::move(message)) {}
  void wait() override {
    mesh_.or_abort([this] {
      mesh_.receive(*message_, call_, data_, contents_);
      for (const auto& [peer, work] : contents_) mesh_.wait(*work, call_, peer);
    });
  }
  int source() const override { return message_->peer; }

 private:
  GlooMesh& mesh_;
  Call call_;
  Span data_;
  std::unique_ptr<Incoming> message_;
  Contents contents_;
};

GlooMesh::GlooMesh(c10::intrusive_ptr<c10d::Backend> gloo)
    : gloo_(std::move(gloo)),
      rank_(gloo_->getRank()),
      size_(gloo_->getSize()),
      mailboxes_(static_cast<size_t>(size_)),
      next_message_id_(static_cast<size_t>(size_), 0),
      talked_to_(static_cast<size_t>(size_), false) {}

GlooMesh::~GlooMesh() = default;

Header GlooMesh::header_for(const Call& call, size_t bytes) const {
  Header header{};
  header.sequence = call.sequence;
  header.bytes = bytes;
  header.factor = call.factor;
  header.root = call.root;
  header.op = call.op;
  header.dtype = static_cast<uint8_t>(call.dtype);
  header.reduction = static_cast<uint8_t>(call.reduction);
  header.layout = call.layout;
  if (!c10d::isP2POp(static_cast<c10d::OpType>(call.op))) header.round = round_;
  return header;
}

std::unique_ptr<GlooMesh::Outgoing> GlooMesh::post_message(Header header, Span data, int peer, int tag) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
    header.message_id = next_message_id_[static_cast<size_t>(peer)]++;
    talked_to_[static_cast<size_t>(peer)] = true;
  }
  const bool is_inline = data.bytes <= kInline;
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->message.resize(sizeof(Header) + (is_inline ? data.bytes : 0));
  std::memcpy(outgoing->message.data(), &header, sizeof(Header));
  if (is_inline && data.bytes > 0) std::memcpy(outgoing->message.data() + sizeof(Header), data.data, data.bytes);
  try {
    auto message = as_tensor({outgoing->message.data(), outgoing->message.size()});
    outgoing->works.push_back(gloo_->send(message, peer, tag));
    if (!is_inline) {
      auto contents = as_tensor(data);
      outgoing->works.push_back(gloo_->send(contents, peer, tag_of(TagKind::kContents, header.message_id)));
    }
  } catch (const std::exception& error) {
    throw EngineError(Kind::kRemote, fmt::format("sending to rank {} failed: {}", peer, error.what()));
  }
  return outgoing;
}

std::unique_ptr<GlooMesh::Incoming> GlooMesh::post_receive(int peer, int tag) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_) throw EngineError(Kind::kAborted, *abort_reason_);
  }
  auto incoming = std::make_unique<Incoming>();
  incoming->peer = peer;
  auto message = as_tensor({incoming->message.data(), incoming->message.size()});
  try {
    incoming->work = peer < 0 ? gloo_->recvAnysource(message, tag) : gloo_->recv(message, peer, tag);
  } catch (const std::exception& error) {
    throw EngineError(Kind::kRemote, fmt::format("receiving from rank {} failed: {}", peer, error.what()));
  }
  return incoming;
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

void GlooMesh::check(const Header& theirs, const Call& call, size_t bytes, int peer) const {
  const Header mine = header_for(call, bytes);
  const bool same = theirs.op == mine.op && theirs.dtype == mine.dtype && theirs.reduction == mine.reduction &&
                    theirs.root == mine.root && theirs.layout == mine.layout && theirs.bytes == mine.bytes;
  if (same && theirs.round == mine.round) return;
  std::string text = fmt::format("rank {} expects {} from rank {}, but that rank says {}", rank_, describe(mine), peer,
                                 describe(theirs));
  if (same) text += fmt::format("; it is at step {} of the group's communication, this one at {}", theirs.round, mine.round);
  if (theirs.layout != mine.layout) text += " in another memory format";
  throw EngineError(Kind::kMismatch, text);
}

Header GlooMesh::receive(Incoming& message, const Call& call, Span data, Contents& pending) {
  wait(*message.work, call, message.peer);
  if (message.peer < 0) message.peer = message.work->sourceRank();
  {
    std::lock_guard lock(mutex_);
    talked_to_[static_cast<size_t>(message.peer)] = true;
  }
  Header header;
  std::memcpy(&header, message.message.data(), sizeof(Header));
  // The two ends of a transfer name it differently, and each counts its own.
  Header comparable = header;
  if (c10d::isP2POp(static_cast<c10d::OpType>(call.op))) comparable.op = call.op;
  check(comparable, call, data.bytes, message.peer);
  if (data.bytes > kInline) {
    auto contents = as_tensor(data);
    pending.emplace_back(message.peer,
                         gloo_->recv(contents, message.peer, tag_of(TagKind::kContents, header.message_id)));
  } else if (data.bytes > 0) {
    std::memcpy(data.data, message.message.data() + sizeof(Header), data.bytes);
  }
  return header;
}

void GlooMesh::post_mailbox(int peer) {
  mailboxes_[static_cast<size_t>(peer)] = post_receive(peer, tag_of(TagKind::kCollective, 0));
}

GlooMesh::Contents GlooMesh::receive_round(const Call& call, const Spans& incoming, std::vector<Header>* headers) {
  Contents contents;
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    const auto& span = incoming[static_cast<size_t>(peer)];
    if (!span) continue;
    const auto message = std::move(mailboxes_[static_cast<size_t>(peer)]);
    const Header theirs = receive(*message, call, *span, contents);
    if (headers != nullptr) (*headers)[static_cast<size_t>(peer)] = theirs;
    try {
      post_mailbox(peer);
    } catch (const EngineError&) {
      // The peer has had its last say and is gone, which does not spoil this round; the next one will report it.
    }
  }
  return contents;
}

void GlooMesh::exchange(const Call& call, const Spans& outgoing, const Spans& incoming, std::vector<Header>* headers) {
  ++round_;
  if (headers != nullptr) headers->assign(static_cast<size_t>(size_), header_for(call, 0));
  or_abort([&] {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !mailboxes_[static_cast<size_t>(peer)]) post_mailbox(peer);
    }
    std::vector<std::pair<int, std::unique_ptr<Outgoing>>> sent;
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + size_ - step) % size_;  // each rank starts with another one
      const auto& span = outgoing[static_cast<size_t>(peer)];
      if (!span) continue;
      sent.emplace_back(peer, post_message(header_for(call, span->bytes), *span, peer,
                                           tag_of(TagKind::kCollective, 0)));
    }
    for (const auto& [peer, work] : receive_round(call, incoming, headers)) wait(*work, call, peer);
    for (const auto& [peer, message] : sent) {
      for (const auto& work : message->works) wait(*work, call, peer);
    }
  });
}

std::unique_ptr<Transfer> GlooMesh::send(const Call& call, Span data, int peer, int tag) {
  auto message = post_message(header_for(call, data.bytes), data, peer,
                              tag_of(TagKind::kUser, static_cast<uint32_t>(tag)));
  return std::make_unique<SendTransfer>(*this, call, peer, std::move(message));
}

std::unique_ptr<Transfer> GlooMesh::recv(const Call& call, Span data, int peer, int tag) {
  auto message = post_receive(peer, tag_of(TagKind::kUser, static_cast<uint32_t>(tag)));
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
  if (size_ == 1) return;
  // Gloo has no call that closes its connections, and peers would wait for their own timeouts. A receive that times out
  // does close them, and the peers then fail at once; so one is made that nobody will answer.
  try {
    std::byte nothing{};
    auto message = as_tensor({&nothing, 1});
    gloo_->recv(message, (rank_ + 1) % size_, tag_of(TagKind::kNobody, 0))->wait(std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // expected: the time-out, or connections that are closed already
  }
}

}  // namespace cann::hccl
