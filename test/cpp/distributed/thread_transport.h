#pragma once
// A Transport whose ranks are threads of this process. The worst that the interface allows: a message is read from its
// sender's memory, and written to its receiver's, as late as possible, when both have called finish().

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "distributed/transport.h"

namespace cann::hccl {

class ThreadTransport final : public Transport {
 public:
  // What the ranks of a group share.
  struct Hub {
    struct Message {
      Call call;
      Span contents;
      bool taken = false;
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::tuple<int, int, int>, Message> messages;  // by round, sender, receiver
    std::string abort_reason;
  };

  ThreadTransport(std::shared_ptr<Hub> hub, int rank, int size) : hub_(std::move(hub)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  size_t bytes_sent() const { return bytes_sent_; }

  std::unique_ptr<Round> start(const Call& call, const Messages& outgoing, const Messages& incoming) override {
    std::lock_guard lock(hub_->mutex);
    ++round_;
    for (int peer = 0; peer < size_; ++peer) {
      const auto& span = outgoing[static_cast<size_t>(peer)];
      if (peer == rank_ || !span) continue;
      hub_->messages[{round_, rank_, peer}] = {call, *span};
      bytes_sent_ += span->bytes;
    }
    hub_->changed.notify_all();
    return std::make_unique<ThreadRound>(*this, round_, call, outgoing, incoming);
  }

  bool talked_to(int) const override { return round_ > 0; }

  void abort(const std::string& reason) noexcept override {
    std::lock_guard lock(hub_->mutex);
    if (hub_->abort_reason.empty()) hub_->abort_reason = reason;
    hub_->changed.notify_all();
  }

  bool aborted() const override {
    std::lock_guard lock(hub_->mutex);
    return !hub_->abort_reason.empty();
  }

 private:
  class ThreadRound final : public Round {
   public:
    ThreadRound(ThreadTransport& transport, int number, const Call& call, Messages outgoing, Messages incoming)
        : transport_(transport),
          number_(number),
          call_(call),
          outgoing_(std::move(outgoing)),
          incoming_(std::move(incoming)) {}

    std::vector<double> finish() override {
      Hub& hub = *transport_.hub_;
      std::unique_lock lock(hub.mutex);
      std::vector<double> factors(static_cast<size_t>(transport_.size_), call_.factor);
      for (int peer = 0; peer < transport_.size_; ++peer) {
        const auto& span = incoming_[static_cast<size_t>(peer)];
        if (peer == transport_.rank_ || !span) continue;
        auto& message = wait_for(lock, peer, transport_.rank_, /*taken=*/false);
        check(message, *span, peer);
        if (span->bytes > 0) std::memcpy(span->data, message.contents.data, span->bytes);
        factors[static_cast<size_t>(peer)] = message.call.factor;
        message.taken = true;
        hub.changed.notify_all();
      }
      for (int peer = 0; peer < transport_.size_; ++peer) {
        if (peer == transport_.rank_ || !outgoing_[static_cast<size_t>(peer)]) continue;
        wait_for(lock, transport_.rank_, peer, /*taken=*/true);
        hub.messages.erase({number_, transport_.rank_, peer});
      }
      return factors;
    }

   private:
    Hub::Message& wait_for(std::unique_lock<std::mutex>& lock, int from, int to, bool taken) {
      Hub& hub = *transport_.hub_;
      const std::tuple key{number_, from, to};
      const auto there = [&] {
        const auto found = hub.messages.find(key);
        return !hub.abort_reason.empty() || (found != hub.messages.end() && found->second.taken == taken);
      };
      if (!hub.changed.wait_for(lock, call_.deadline.remaining(), there)) {
        throw EngineError(EngineError::Kind::kTimeout, "no answer from rank " + std::to_string(taken ? to : from));
      }
      if (!hub.abort_reason.empty()) throw EngineError(EngineError::Kind::kRemote, hub.abort_reason);
      return hub.messages[key];
    }

    void check(const Hub::Message& message, Span expected, int peer) {
      const Call& theirs = message.call;
      if (theirs.op == call_.op && theirs.root == call_.root && theirs.bytes == call_.bytes &&
          theirs.dtype == call_.dtype && message.contents.bytes == expected.bytes) {
        return;
      }
      transport_.hub_->abort_reason = "rank " + std::to_string(peer) + " does something else";
      transport_.hub_->changed.notify_all();
      throw EngineError(EngineError::Kind::kMismatch, transport_.hub_->abort_reason);
    }

    ThreadTransport& transport_;
    const int number_;
    const Call call_;
    const Messages outgoing_;
    const Messages incoming_;
  };

  const std::shared_ptr<Hub> hub_;
  const int rank_;
  const int size_;
  int round_ = 0;
  size_t bytes_sent_ = 0;
};

}  // namespace cann::hccl
