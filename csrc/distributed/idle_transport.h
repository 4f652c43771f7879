#pragma once
// The transport of a rank that is on no rail: it has a rank and a size, so that plans have their usual numbers of
// steps, but its rounds are over at once and nothing is sent. Such a rank thus meets the others of its host at the same
// places of an operation as those who do carry something. No torch here.

#include <memory>
#include <vector>

#include "distributed/transport.h"

namespace cann::hccl {

class IdleTransport final : public Transport {
 public:
  IdleTransport(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Round> start(const Call& call, const Messages&, const Messages&) override {
    return std::make_unique<IdleRound>(std::vector<double>(static_cast<size_t>(size_), call.factor));
  }
  bool talked_to(int) const override { return false; }
  void abort(const std::string&) noexcept override {}
  bool aborted() const override { return false; }

 private:
  class IdleRound final : public Round {
   public:
    explicit IdleRound(std::vector<double> factors) : factors_(std::move(factors)) {}
    std::vector<double> finish() override { return factors_; }

   private:
    const std::vector<double> factors_;
  };

  const int rank_;
  const int size_;
};

}  // namespace cann::hccl
