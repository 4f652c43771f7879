#pragma once
// An algorithm between hosts as data: the steps that one rank takes, each a round of messages and what to do with them.
//
// A plan can be counted (bytes, steps) without running it, and several plans, the chunks of one operation, can run
// interleaved, so that the wire carries one chunk while another is reduced. No torch here.

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/transport.h"

namespace cann::hccl {

struct Step {
  // Before the round: fills outgoing memory. May be empty.
  std::function<void()> before;
  Messages outgoing;
  Messages incoming;
  // After the round, with the ranks' factors. May be empty.
  std::function<void(const std::vector<double>& factors)> after;
};

// All ranks' plans for an operation have equally many steps; a rank that has nothing to do in one has a step without
// messages.
using Plan = std::vector<Step>;

// Bytes of all outgoing messages.
size_t bytes_sent(const Plan& plan, int rank);

// Memory that plans use while they run. Kept from operation to operation, as fresh pages cost more than a transfer.
class Scratch {
 public:
  // Valid until reset().
  Span take(size_t bytes);
  // Takes everything back; gives memory beyond 64 MiB back to the system.
  void reset();

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<size_t> sizes_;
  size_t block_ = 0;  // blocks before it are full
  size_t used_ = 0;   // of block_
};

// Runs `count` plans interleaved. make(i) gives plan i when its turn to start has come; done(i) is called once its last
// step is finished. Both are called in the order of i, on the calling thread, while earlier plans are on the wire. The
// order of all calls depends on `count` and the numbers of steps alone, so make() and done() may meet other ranks.
void run_plans(Transport& transport, const Call& call, size_t count, const std::function<Plan(size_t)>& make,
               const std::function<void(size_t)>& done);
void run_plan(Transport& transport, const Call& call, Plan plan);

}  // namespace cann::hccl
