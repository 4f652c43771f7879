#pragma once
// How the ranks of a group find each other: what kind of engine connects them, and the making of it.
//
// Ranks of one host share memory; ranks of several hosts exchange messages through Gloo, in two levels unless every
// rank has a host of its own. What is one host is told by the kernel's boot id and by the namespaces and the user of
// the process, so that two containers or network namespaces on one machine count as two hosts.

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

struct Connection {
  std::shared_ptr<Engine> engine;
  c10::intrusive_ptr<c10d::Store> store;  // a part of the store to which nobody else has written, nor will
};

// Connects the ranks of a group; `wire` says how to carry what goes from host to host. All of them must call with the
// same store and the same `wire`; another group may have met at the store before, but none meets there meanwhile.
// Raises DistBackendError naming the ranks that have not come within `timeout`, or HCCL_CONNECT_TIMEOUT if that is
// less.
Connection connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
                   const GlooMaker& make_gloo, const WireOptions& wire);

}  // namespace cann::hccl
