#pragma once
// Checked messages between the ranks of a group, over the point-to-point operations of a ProcessGroupGloo.
//
// Only Gloo's send and recv are used. Its collectives take every rank's sizes on trust and end the process when they
// differ; here each message starts with a header that says which operation it belongs to, so ranks that disagree are
// told apart before any byte lands in a wrong place. Contents that do not fit behind the header follow in a transfer of
// their own, under a tag that only a receive of the right size is posted for.
//
// The object is shared by all threads of a process group. Rounds belong to one thread at a time. Gloo's transfers go on
// by themselves, so rounds overlap as Transport says.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "distributed/transport.h"

namespace cann::hccl {

// What a rank announces with a message. Plain bytes on the wire: all ranks run the same build on the same byte order.
struct Header {
  uint64_t sequence;
  uint64_t round;  // counts the rounds of a communicator; 0 in point-to-point messages
  uint64_t bytes;  // of the contents
  uint64_t total;  // of the operation: Call::bytes
  double factor;
  uint32_t message_id;  // unique among the messages to one peer
  int32_t root;
  uint8_t op;
  uint8_t dtype;
  uint8_t reduction;
  uint8_t layout;
  uint32_t unused;  // always 0
};
static_assert(sizeof(Header) == 56);

// Contents up to these sizes travel behind their header in one Gloo transfer, which saves more time than copying them
// costs; longer ones follow in a transfer of their own. Every posted receive has room for the former.
inline constexpr size_t kCollectiveInline = 128 * 1024;
inline constexpr size_t kUserInline = 8 * 1024;

class GlooMesh final : public Transport {
 public:
  // `gloo` must be a ProcessGroupGloo of the same ranks, used by nobody else.
  explicit GlooMesh(c10::intrusive_ptr<c10d::Backend> gloo);
  ~GlooMesh() override;
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Round> start(const Call& call, const Messages& outgoing, const Messages& incoming) override;

  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag);
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag);

  bool talked_to(int peer) const override;
  void abort(const std::string& reason) noexcept override;
  bool aborted() const override;

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // One message on its way: the buffer, and what Gloo does with it, which is destroyed first.
  struct Message {
    std::vector<std::byte> buffer;
    std::vector<WorkPtr> works;
    int peer = -1;  // -1: any
  };
  class MeshRound;
  class SendTransfer;
  class RecvTransfer;

  // `round` is 0 in point-to-point messages.
  Header header_for(const Call& call, size_t bytes, uint64_t round) const;
  // Posts a header with its contents, or the two of them one after the other. Uses and keeps the buffer of `message`.
  void post_message(Message& message, Header header, Span data, int tag);
  // Posts a receive for a header and up to `room` bytes of contents. Uses and keeps the buffer of `message`.
  void post_receive(Message& message, size_t room, int tag);
  WorkPtr post_receive(Span data, int peer, int tag);
  // Waits for a posted message and checks that it is of `call`; `data` receives its contents if it carries them.
  Header receive(Message& message, const Call& call, Span data, uint64_t round);
  void check(const Header& theirs, const Call& call, const Header& mine, int peer) const;
  void wait(c10d::Work& work, const Call& call, int peer);
  // Runs `body`; an EngineError ends the communicator for this rank and its peers.
  template <typename Body>
  void or_abort(Body&& body) {
    try {
      body();
    } catch (const EngineError& error) {
      abort(error.what());
      throw;
    }
  }
  c10::intrusive_ptr<c10d::Backend> gloo_;
  const int rank_;
  const int size_;
  uint64_t round_ = 0;
  // Receives of collective messages of a peer, which arrive in order. One at least is always posted once the two have
  // talked, and one for each round under way: a sender then needs no reply to go ahead.
  struct Mailbox {
    std::deque<Message> posted;
    size_t expected = 0;  // messages of rounds that have been started
    void fill(GlooMesh& mesh, int peer, Message recycled);
  };
  std::vector<Mailbox> mailboxes_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<uint32_t> next_message_id_;
  std::vector<bool> talked_to_;
  std::unordered_set<c10d::Work*> waited_for_;
  std::optional<std::string> abort_reason_;
};

}  // namespace cann::hccl
