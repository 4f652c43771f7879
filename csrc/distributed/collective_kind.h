#pragma once
// Which of the simulator's collectives an operation of a process group is.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "sim/topology.h"

namespace cann::hccl {

// Its coalesced and flat forms are the collective itself; sends and receives are kPointToPoint.
sim::Collective collective_of(c10d::OpType op);

}  // namespace cann::hccl
