#include "distributed/collective_kind.h"

namespace cann::hccl {

sim::Collective collective_of(c10d::OpType op) {
  using c10d::OpType;
  using sim::Collective;
  switch (op) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return Collective::kAllReduce;
    case OpType::REDUCE:
      return Collective::kReduce;
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
    case OpType::ALLGATHER_COALESCED:
      return Collective::kAllGather;
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return Collective::kReduceScatter;
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      return Collective::kAllToAll;
    case OpType::GATHER:
      return Collective::kGather;
    case OpType::SCATTER:
      return Collective::kScatter;
    case OpType::BARRIER:
      return Collective::kBarrier;
    case OpType::SEND:
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      return Collective::kPointToPoint;
    default:
      return Collective::kBroadcast;
  }
}

}  // namespace cann::hccl
