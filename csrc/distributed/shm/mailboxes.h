#pragma once
// Point-to-point messages inside a host.
//
// Every ordered pair of ranks has a mailbox: a ring of fragments that the sender fills and the receiver empties, so a
// pair's messages arrive in the order they were posted. A message of at most kEagerBytes is cut into fragments, and its
// sender is done once all of it lies there, which waits for the receiver only if older messages take up the room. Of a
// longer one in shared HBM the mailbox carries the place only: the receiver copies it from there, once, and raises the
// message's ticket. Other contents follow fragment by fragment.
//
// Nothing moves by itself: whoever waits for a transfer moves on all messages of this rank, to and from every peer, so
// that a message that waits for its receive holds up no other. All functions are thread-safe.

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "distributed/shm/communicator.h"

namespace cann::hccl {

class Mailboxes {
 public:
  explicit Mailboxes(Communicator& communicator);

  // As Engine::send() and recv(); `this` must outlive what they return.
  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag);
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag);

 private:
  struct Outgoing;
  struct Incoming;
  struct Message;
  class SendTransfer;
  class RecvTransfer;
  using OutgoingPtr = std::shared_ptr<Outgoing>;
  using IncomingPtr = std::shared_ptr<Incoming>;
  using MessagePtr = std::shared_ptr<Message>;

  // The caller holds the lock for the functions that follow.
  void move_all();
  void fill(int peer);
  void begin_message(Outgoing& out, Fragment& fragment);
  void empty(int peer);
  MessagePtr message_from(int peer, Fragment& fragment);
  void match(const MessagePtr& message, const IncomingPtr& receive);
  void hand_over(Message& message);
  void fetch(Message& message);

  // The functions that follow take it. is_done() moves on all messages and says whether this one has gone, or come.
  bool is_done(Outgoing& out);
  bool is_done(const Incoming& in);
  void wait_for(const OutgoingPtr& out);
  void wait_for(const IncomingPtr& in);
  void drop(const OutgoingPtr& out) noexcept;
  void drop(const IncomingPtr& in) noexcept;

  Communicator& comm_;
  const ControlBlock& block_;

  std::mutex mutex_;  // guards what follows
  struct Pair {
    uint32_t next_filled = 0;   // fragment of the mailbox to the peer
    uint32_t next_emptied = 0;  // fragment of the mailbox from it
    std::deque<OutgoingPtr> outgoing;
    MessagePtr arriving;  // of which fragments are to come
  };
  std::vector<Pair> pairs_;
  std::list<MessagePtr> unexpected_;   // no receive is posted for them yet; in order of arrival
  std::vector<MessagePtr> fetchable_;  // matched, and still in the sender's HBM
  std::list<IncomingPtr> posted_;      // no message has come for them yet; in order of posting
};

}  // namespace cann::hccl
