#pragma once
// The environment variables of HCCL that this backend reads, with their defaults and allowed values.
//
// Read once, at the first call of HcclEnv::get(), as cann::sim::Env does for the device; a malformed value raises
// ValueError naming the variable, its value and what is allowed. Thread-safe. Names and defaults: torch_npu's and
// HCCL's public environment variable references.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace cann::hccl {

struct HcclEnv {
  static const HcclEnv& get();

  // HCCL_BUFFSIZE: MB of one of a communicator's two buffers; positive. Default 200.
  size_t buffer_megabytes = 200;
  // P2P_HCCL_BUFFSIZE: the same for the communicator that a pair of ranks uses for send and receive; 0 shares the
  // group's. Default 20.
  size_t p2p_buffer_megabytes = 20;
  // HCCL_CONNECT_TIMEOUT: seconds to wait for the other ranks when a communicator is made; positive. When unset, the
  // group's timeout counts.
  std::optional<std::chrono::seconds> connect_timeout;
  // HCCL_EXEC_TIMEOUT: seconds that an operation may wait for its peers; 0 is no limit. When unset, the group's own
  // timeout alone counts (30 minutes unless given).
  std::optional<std::chrono::seconds> exec_timeout;
  // TORCH_HCCL_TRACE_BUFFER_SIZE: operations that the flight recorder keeps. Default 0, none.
  size_t trace_entries = 0;
  // TORCH_HCCL_DEBUG_INFO_TEMP_FILE: where it writes them, followed by the rank. Default "/tmp/hccl_trace_rank_".
  std::string trace_file = "/tmp/hccl_trace_rank_";
};

}  // namespace cann::hccl
