#pragma once
// When operations of real ranks happen on the simulated clock: a collective starts when its last rank has come to it, a
// receive when its message has been sent.
//
// While the clock is on, ranks tell each other their virtual times over the engine: before each collective by a
// gathering of 16 bytes a rank, after each message by one of 16 bytes more. So all ranks of a group must have
// TORCH_CANN_SIMULATE set alike; where they do not, the engine finds that they disagree and says so. A send ends when
// its bytes have moved, whether or not its receiver had come. What operations take is sim::Topology's answer. One
// object per process group; thread-safe.

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "distributed/engine.h"
#include "sim/topology.h"

namespace cann::hccl {

class VirtualTime {
 public:
  // `ranks` are the group's members as global ranks; empty: 0 to size - 1.
  VirtualTime(std::vector<int64_t> ranks, int rank, int size);

  // This rank's side of an operation. Microseconds.
  struct Arrival {
    double ready = 0;
    double us = 0;
  };
  // On the thread that issues the operation, whose stream has come to it.
  Arrival arrive(c10d::OpType op, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                 c10::Device device, int peer = -1) const;

  // The following give the operation's end and raise EngineError.
  // Of a collective, before it: learns when the other ranks are ready. On the thread that carries out collectives.
  double meet(Engine& engine, const Call& call, const Arrival& mine);
  // Of a message from `peer`, after it: learns when that was ready.
  double learn(Engine& engine, const Call& call, const Arrival& mine, int peer, int tag) const;
  // Of a message to `peer`, after it.
  static std::unique_ptr<Transfer> tell(Engine& engine, const Call& call, const Arrival& mine, int peer, int tag);

 private:
  std::vector<int> ranks_;
  int rank_;
  sim::GroupShape shape_;
  std::mutex mutex_;
  double free_ = 0;  // end of the last collective; equal on all ranks
};

// Makes `stream` wait until `end`, on its virtual clock. `communication` is the stream that stands for the operation's.
void wait_until(double end, c10::Stream communication, c10::Stream stream, bool host_too);

}  // namespace cann::hccl
