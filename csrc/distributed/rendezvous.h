#pragma once
// How the ranks of a group find each other: what kind of engine connects them, and the making of it.
//
// Ranks of one host share memory; ranks of several hosts exchange messages through Gloo, in two levels unless every rank
// has a host of its own. What is one host is told by the kernel's boot id and by the namespaces and the user of the
// process, so that two containers or network namespaces on one machine count as two hosts.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>

#include "distributed/mesh_engine.h"

namespace cann::hccl {

// Makes a ProcessGroupGloo of the ranks that meet at `store`; only Python can. Blocks until all have come.
using GlooMaker =
    std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)>;

// The engine of a group; `wire` says how it is to carry what goes from host to host. All its ranks must call with the
// same store, to whose keys nobody else writes, and the same `wire`. Raises DistBackendError naming the ranks that have
// not come within `timeout`, or HCCL_CONNECT_TIMEOUT if that is less.
std::shared_ptr<Engine> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                std::chrono::milliseconds timeout, const GlooMaker& make_gloo, const WireOptions& wire);

}  // namespace cann::hccl
