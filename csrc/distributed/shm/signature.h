#pragma once
// Comparing what two ranks say they do. Stateless.

#include <string>

#include "distributed/shm/control_block.h"

namespace cann::hccl {

Signature signature_of(const Call& call, uint64_t bytes);
// Whether they describe one operation: a send and a receive do. Factors may differ, and so
// may sequence numbers: a communicator that was rebuilt continues each rank's own.
bool agree(const Signature& mine, const Signature& theirs);
// "rank 0 is in ALLREDUCE #3 (16 bytes of Float, SUM), but rank 1 says it is in ..."
std::string disagreement(int rank, const Signature& mine, int peer, const Signature& theirs);

}  // namespace cann::hccl
