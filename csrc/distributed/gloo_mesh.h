#pragma once
// Checked messages between the ranks of a group, over the point-to-point operations of a ProcessGroupGloo.
//
// Only Gloo's send and recv are used. Its collectives take every rank's sizes on trust and end the process when they
// differ; here each message starts with a header that says which operation it belongs to, so ranks that disagree are
// told apart before any byte lands in a wrong place. A message is one Gloo transfer of at most kHeader + kInline bytes;
// longer contents follow in a transfer of their own, received once the header has been checked.
//
// The object is shared by all threads of a process group. exchange() belongs to one thread at a time.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <mutex>
#include <optional>
#include <unordered_set>

#include "distributed/engine.h"

namespace cann::hccl {

// What a rank announces with a message. Plain bytes on the wire: all ranks run the same build on the same byte order.
struct Header {
  uint64_t sequence;
  uint64_t round;       // counts the exchanges of a communicator; 0 in point-to-point messages
  uint64_t bytes;       // of the contents
  double factor;
  uint32_t message_id;  // tag of the second transfer
  int32_t root;
  uint8_t op;
  uint8_t dtype;
  uint8_t reduction;
  uint8_t layout;
  uint32_t unused;  // always 0
};
static_assert(sizeof(Header) == 48);

// Header::op of the message that says "I am leaving the group": no c10d::OpType.
inline constexpr uint8_t kLeaving = 255;

inline constexpr size_t kInline = 8192;
inline constexpr size_t kMessage = sizeof(Header) + kInline;

class GlooMesh {
 public:
  using Spans = std::vector<std::optional<Span>>;  // by rank; nullopt: no message to or from it

  // `gloo` must be a ProcessGroupGloo of the same ranks, used by nobody else.
  explicit GlooMesh(c10::intrusive_ptr<c10d::Backend> gloo);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // One round of a collective: sends outgoing[p] to and receives incoming[p] from every peer p; entries for this rank
  // are ignored. Returns when all are done. headers[p], if wanted, is what peer p announced.
  // Raises EngineError, and kMismatch when a peer takes part in another operation or with another size.
  void exchange(const Call& call, const Spans& outgoing, const Spans& incoming, std::vector<Header>* headers = nullptr);

  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag);
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag);

  // Whether a message has gone to or come from `peer`.
  bool talked_to(int peer) const;

  void abort(const std::string& reason) noexcept;
  bool aborted() const;

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  using Contents = std::vector<std::pair<int, c10::intrusive_ptr<c10d::Work>>>;  // second transfers, with the peer
  struct Outgoing;
  struct Incoming;
  class SendTransfer;
  class RecvTransfer;

  Header header_for(const Call& call, size_t bytes) const;
  // Posts header, inline contents and, when long, the contents themselves.
  std::unique_ptr<Outgoing> post_message(Header header, Span data, int peer, int tag);
  std::unique_ptr<Incoming> post_receive(int peer, int tag);
  void post_mailbox(int peer);
  // Waits for a posted message, checks it with `check` (empty: fine), and brings its contents into `data`. The
  // second transfer of a long one is appended to `pending`.
  Header receive(Incoming& message, const Call& call, Span data, Contents& pending);
  void check(const Header& theirs, const Call& call, size_t bytes, int peer) const;
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
  Contents receive_round(const Call& call, const Spans& incoming, std::vector<Header>* headers);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  const int rank_;
  const int size_;
  uint64_t round_ = 0;
  // A receive is always posted for the next collective message of each peer: a sender then needs no reply to go ahead.
  std::vector<std::unique_ptr<Incoming>> mailboxes_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<uint32_t> next_message_id_;
  std::vector<bool> talked_to_;
  std::unordered_set<c10d::Work*> waited_for_;
  std::optional<std::string> abort_reason_;
};

}  // namespace cann::hccl
