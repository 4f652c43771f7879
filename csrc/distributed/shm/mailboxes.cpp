#include "distributed/shm/mailboxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "distributed/shm/signature.h"
#include "kernels/kernels.h"

namespace cann::hccl {
namespace {

using Kind = EngineError::Kind;
// From this size on contents are copied past the caches. Later than in collectives: who receives reads them next, on
// the core that has just copied them, and only one rank fills the caches.
constexpr size_t kStreamBytes = size_t{4} << 20;

}  // namespace

struct Mailboxes::Outgoing {
  Call call;
  Span data;
  int peer;
  int tag;
  uint64_t sent = 0;
  bool begun = false;
  bool done = false;  // nothing of `data` is needed any more
  uint32_t ticket = kTickets;
};

struct Mailboxes::Incoming {
  Call call;
  Span data;
  int peer;  // -1: any
  int tag;
  MessagePtr message;
  bool done = false;  // nothing will be written to `data` any more
};

struct Mailboxes::Message {
  int from;
  int tag;
  Signature signature;
  uint64_t bytes;
  uint32_t ticket;  // kTickets: contents come in fragments
  uint64_t offset;  // in the sender's HBM otherwise
  uint64_t received = 0;
  std::vector<std::byte> kept;  // contents that came before the receive was posted
  IncomingPtr receive;
  std::optional<EngineError> problem;
  bool in_hbm() const { return ticket < kTickets; }
  bool complete() const { return received == bytes; }
};

Mailboxes::Mailboxes(Communicator& communicator)
    : comm_(communicator), block_(communicator.block()), pairs_(static_cast<size_t>(communicator.size())) {}

// ---- sending --------------------------------------------------------------------------------------------------------

void Mailboxes::begin_message(Outgoing& out, Fragment& fragment) {
  fragment.signature = signature_of(out.call, out.data.bytes);
  fragment.total = out.data.bytes;
  fragment.tag = out.tag;
  fragment.ticket = kTickets;
  out.begun = true;
  if (out.data.bytes <= kEagerBytes) return;
  const auto offset = comm_.hbm_offset(out.data);
  if (!offset) return;
  auto& tickets = block_.mailbox(comm_.rank(), out.peer).tickets;
  for (uint32_t ticket = 0; ticket < kTickets; ++ticket) {
    if (tickets[ticket].load(std::memory_order_acquire) != 0) continue;
    tickets[ticket].store(1, std::memory_order_relaxed);
    fragment.ticket = out.ticket = ticket;
    fragment.offset = *offset;
    return;
  }
}

void Mailboxes::fill(int peer) {
  Pair& pair = pairs_[static_cast<size_t>(peer)];
  Mailbox& box = block_.mailbox(comm_.rank(), peer);
  bool filled = false;
  while (!pair.outgoing.empty()) {
    Fragment& fragment = box.fragments[pair.next_filled % kFragments];
    if (fragment.full.load(std::memory_order_acquire) != 0) break;
    Outgoing& out = *pair.outgoing.front();
    if (!out.begun) begin_message(out, fragment);
    fragment.bytes = 0;
    if (out.ticket == kTickets) {
      fragment.bytes = static_cast<uint32_t>(std::min<uint64_t>(out.data.bytes - out.sent, kFragmentBytes));
      if (fragment.bytes > 0) std::memcpy(fragment.payload, out.data.data + out.sent, fragment.bytes);
      out.sent += fragment.bytes;
      out.done = out.sent == out.data.bytes;
    }
    if (out.done || out.ticket < kTickets) pair.outgoing.pop_front();
    fragment.full.store(1, std::memory_order_release);
    ++pair.next_filled;
    filled = true;
  }
  if (filled) block_.state(peer).bell.raise();
}

// ---- receiving ------------------------------------------------------------------------------------------------------

Mailboxes::MessagePtr Mailboxes::message_from(int peer, Fragment& fragment) {
  auto message = std::make_shared<Message>();
  message->from = peer;
  message->tag = fragment.tag;
  message->signature = fragment.signature;
  message->bytes = fragment.total;
  message->ticket = std::min<uint32_t>(fragment.ticket, kTickets);
  message->offset = fragment.offset;
  const auto fits = [&](const IncomingPtr& in) {
    return in->tag == message->tag && (in->peer < 0 || in->peer == peer);
  };
  const auto receive = std::find_if(posted_.begin(), posted_.end(), fits);
  if (receive == posted_.end()) {
    unexpected_.push_back(message);
  } else {
    match(message, *receive);
    posted_.erase(receive);
  }
  return message;
}

void Mailboxes::match(const MessagePtr& message, const IncomingPtr& receive) {
  const Signature mine = signature_of(receive->call, receive->data.bytes);
  if (!agree(mine, message->signature) || message->bytes != mine.bytes) {
    message->problem.emplace(Kind::kMismatch, disagreement(comm_.rank(), mine, message->from, message->signature));
  }
  message->receive = receive;
  receive->message = message;
  if (message->in_hbm() && !message->problem) fetchable_.push_back(message);
}

void Mailboxes::empty(int peer) {
  Pair& pair = pairs_[static_cast<size_t>(peer)];
  Mailbox& box = block_.mailbox(peer, comm_.rank());
  bool emptied = false;
  while (true) {
    Fragment& fragment = box.fragments[pair.next_emptied % kFragments];
    if (fragment.full.load(std::memory_order_acquire) == 0) break;
    if (!pair.arriving) pair.arriving = message_from(peer, fragment);
    Message& message = *pair.arriving;
    if (!message.in_hbm()) {
      // A peer's numbers are not to be trusted: never more than the message was announced to have.
      const size_t bytes =
          std::min<uint64_t>(std::min<uint64_t>(fragment.bytes, kFragmentBytes), message.bytes - message.received);
      const bool placed = message.receive && !message.problem;
      if (placed) {
        if (bytes > 0) std::memcpy(message.receive->data.data + message.received, fragment.payload, bytes);
      } else {
        message.kept.insert(message.kept.end(), fragment.payload, fragment.payload + bytes);
      }
      message.received += bytes;
      if (bytes == 0 && !message.complete()) {
        message.problem.emplace(Kind::kRemote, fmt::format("a message from rank {} is damaged", peer));
      }
    }
    if (message.in_hbm() || message.complete() || message.problem) pair.arriving.reset();
    fragment.full.store(0, std::memory_order_release);
    ++pair.next_emptied;
    emptied = true;
  }
  if (emptied) block_.state(peer).bell.raise();
}

void Mailboxes::hand_over(Message& message) {
  if (message.kept.empty() || message.problem) return;
  std::memcpy(message.receive->data.data, message.kept.data(), message.kept.size());
  message.kept = {};
}

void Mailboxes::move_all() {
  for (int peer = 0; peer < comm_.size(); ++peer) {
    if (peer == comm_.rank()) continue;
    if (!pairs_[static_cast<size_t>(peer)].outgoing.empty()) fill(peer);
    empty(peer);
  }
  for (const MessagePtr& message : fetchable_) fetch(*message);
  fetchable_.clear();
}

void Mailboxes::fetch(Message& message) {
  const Span to = message.receive->data;
  try {
    const std::byte* from = comm_.hbm(message.from, message.offset, message.bytes);
    if (message.bytes >= kStreamBytes) {
      kernels::kernels().reduction->stream_copy(to.data, from, message.bytes);
    } else {
      std::memcpy(to.data, from, message.bytes);
    }
  } catch (const EngineError& error) {
    message.problem.emplace(error);
    return;
  }
  message.received = message.bytes;
  block_.mailbox(message.from, comm_.rank()).tickets[message.ticket].store(2, std::memory_order_release);
  block_.state(message.from).bell.raise();
}

// ---- transfers ------------------------------------------------------------------------------------------------------

class Mailboxes::SendTransfer final : public Transfer {
 public:
  SendTransfer(Mailboxes& boxes, OutgoingPtr out) : boxes_(boxes), out_(std::move(out)) {}
  ~SendTransfer() override { boxes_.drop(out_); }
  void wait() override {
    boxes_.comm_.or_abort([this] { boxes_.wait_for(out_); });
  }
  bool ready() override { return boxes_.is_done(*out_); }
  int source() const override { return -1; }

 private:
  Mailboxes& boxes_;
  OutgoingPtr out_;
};

class Mailboxes::RecvTransfer final : public Transfer {
 public:
  RecvTransfer(Mailboxes& boxes, IncomingPtr in) : boxes_(boxes), in_(std::move(in)) {}
  ~RecvTransfer() override { boxes_.drop(in_); }
  void wait() override {
    boxes_.comm_.or_abort([this] { boxes_.wait_for(in_); });
    source_ = in_->message->from;
  }
  bool ready() override { return boxes_.is_done(*in_); }
  int source() const override { return source_; }

 private:
  Mailboxes& boxes_;
  IncomingPtr in_;
  int source_ = -1;
};

std::unique_ptr<Transfer> Mailboxes::send(const Call& call, Span data, int peer, int tag) {
  comm_.check_usable();
  auto out = std::make_shared<Outgoing>(Outgoing{call, data, peer, tag});
  std::lock_guard lock(mutex_);
  pairs_[static_cast<size_t>(peer)].outgoing.push_back(out);
  fill(peer);
  return std::make_unique<SendTransfer>(*this, std::move(out));
}

std::unique_ptr<Transfer> Mailboxes::recv(const Call& call, Span data, int peer, int tag) {
  comm_.check_usable();
  auto in = std::make_shared<Incoming>(Incoming{call, data, peer, tag, nullptr, false});
  std::lock_guard lock(mutex_);
  const auto fits = [&](const MessagePtr& message) {
    return message->tag == tag && (peer < 0 || peer == message->from);
  };
  const auto message = std::find_if(unexpected_.begin(), unexpected_.end(), fits);
  if (message == unexpected_.end()) {
    posted_.push_back(in);
  } else {
    match(*message, in);
    hand_over(**message);
    unexpected_.erase(message);
  }
  return std::make_unique<RecvTransfer>(*this, std::move(in));
}

bool Mailboxes::is_done(Outgoing& out) {
  std::lock_guard lock(mutex_);
  move_all();
  if (out.ticket == kTickets || out.done) return out.done;
  auto& ticket = block_.mailbox(comm_.rank(), out.peer).tickets[out.ticket];
  if (ticket.load(std::memory_order_acquire) != 2) return false;
  ticket.store(0, std::memory_order_release);
  out.done = true;
  return true;
}

bool Mailboxes::is_done(const Incoming& in) {
  std::lock_guard lock(mutex_);
  move_all();
  return in.message && (in.message->complete() || in.message->problem);
}

void Mailboxes::wait_for(const OutgoingPtr& out) {
  const auto done = [&] { return is_done(*out); };
  if (spin_until(done)) return;
  comm_.wait(out->call, block_.state(comm_.rank()).bell, done, [&](int rank) { return rank == out->peer; });
}

void Mailboxes::wait_for(const IncomingPtr& in) {
  const auto done = [&] { return is_done(*in); };
  const auto missing = [&](int rank) {
    std::lock_guard lock(mutex_);
    const int from = in->message ? in->message->from : in->peer;
    return from < 0 || rank == from;
  };
  if (!spin_until(done)) {
    comm_.wait(in->call, block_.state(comm_.rank()).bell, done, missing, /*any=*/in->peer < 0);
  }
  const std::lock_guard lock(mutex_);
  in->done = true;
  if (in->message->problem) throw *in->message->problem;
}

void Mailboxes::drop(const OutgoingPtr& out) noexcept {
  bool broken = false;
  {
    std::lock_guard lock(mutex_);
    auto& queue = pairs_[static_cast<size_t>(out->peer)].outgoing;
    std::erase(queue, out);
    broken = out->begun && !out->done;
  }
  // The peer may be about to read what the caller is about to free.
  if (broken) comm_.abort("a send was given up before it was done");
}

void Mailboxes::drop(const IncomingPtr& in) noexcept {
  bool broken = false;
  {
    std::lock_guard lock(mutex_);
    std::erase(posted_, in);
    // Fragments on their way must not be written to memory that the caller is about to free.
    broken = in->message && !in->done;
    if (in->message) {
      if (broken) in->message->problem.emplace(Kind::kAborted, "the receive was given up");
      std::erase(fetchable_, in->message);
      in->message->receive.reset();
      in->message.reset();
    }
  }
  if (broken) comm_.abort("a receive was given up before it was done");
}

}  // namespace cann::hccl
