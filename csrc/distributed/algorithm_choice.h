#pragma once
// Which algorithm carries a collective between hosts: by its size and the number of ranks, unless the user says so.
//
// The user's word is HCCL_ALGO, or hccl_algo of Options.hccl_config, in HCCL's own form: "level0:NA;level1:<algorithm>"
// for every operation, or "<operation>=level0:NA;level1:<algorithm>" for some, separated by "/". Operations: allgather,
// reducescatter, allreduce, broadcast, reduce, scatter, alltoall. level0 is the inside of a host and can only be NA.
// Algorithms: ring, H-D_R (halving-doubling), and two that HCCL does not have: direct and tree. HCCL's other ones
// (NHR, NHR_V1, NB, AHC, pipeline, pairwise) are not simulated; with them the choice stays automatic, and a warning
// says so. No torch here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

// See algorithms.h for the steps and bytes of each.
enum class Algorithm { kWhole, kDirect, kRing, kHalvingDoubling, kTree };

// The operations that have more than one.
enum class MeshOperation { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
inline constexpr size_t kMeshOperations = 4;

class AlgorithmChoice {
 public:
  // Nothing is asked for.
  AlgorithmChoice() = default;
  // Raises std::invalid_argument saying what is allowed.
  static AlgorithmChoice parse(const std::string& text);

  // What was asked for and has no effect; a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The algorithm for `bytes` of `dtype` on `ranks` ranks. One that was asked for and cannot do the operation is
  // replaced: tree by direct in reduce_scatter and all_gather, halving-doubling by ring where `ranks` is no power of
  // two or the operation is no all_reduce, both by direct in broadcast, everything by direct under kPremultipliedSum.
  // When nothing is asked for, direct: it has the fewest steps of those that send the least. Only among more than 8
  // ranks, where every rank would talk to very many, all_reduce takes tree up to 64 KiB, else halving-doubling or ring,
  // reduce_scatter and all_gather ring, broadcast tree; but not for 16-bit types, whose partial sums others than direct
  // would round at every step. A direct all_reduce of two ranks, or one that would receive no more than 256 KiB in all,
  // is whole.
  Algorithm choose(MeshOperation operation, size_t bytes, DataType dtype, Reduction reduction, int ranks) const;

 private:
  void parse_one(const std::string& text);

  std::array<std::optional<Algorithm>, kMeshOperations> asked_;
  std::vector<std::string> warnings_;
};

}  // namespace cann::hccl
