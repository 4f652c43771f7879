#pragma once
// What algorithms between hosts are written against: rounds of messages between the ranks of a group.
//
// A round sends at most one message to and receives at most one from every peer. Rounds may overlap: any number can be
// started before the first is finished, as long as every rank starts the same rounds in the same order and finishes
// them in that order. Belongs to one thread at a time. Every failure is an EngineError. No torch here.

#include <memory>
#include <optional>
#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

// Messages of a round by rank; nullopt: none to or from it. A message may be empty. The own entry is ignored.
using Messages = std::vector<std::optional<Span>>;

// Call::op of the round that says "I am leaving the group": no c10d::OpType.
inline constexpr uint8_t kLeaving = 255;

class Round {
 public:
  virtual ~Round() = default;
  // Blocks until all messages of the round have gone and come, which is when their memory is free again; call once.
  // Gives the factor (Call::factor) of every rank that a message came from, and of this one. Raises kMismatch when a
  // peer takes part in another operation or with another size.
  virtual std::vector<double> finish() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts a round without waiting. The memory must stay valid until finish() returns, or the round is destroyed after
  // a failure. Ranks must agree on what `call` says, and on the size of each message.
  virtual std::unique_ptr<Round> start(const Call& call, const Messages& outgoing, const Messages& incoming) = 0;

  // Whether a message has gone to or come from `peer`. Any thread.
  virtual bool talked_to(int peer) const = 0;
  // As Engine's. Any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  virtual bool aborted() const = 0;
};

}  // namespace cann::hccl
