#pragma once
// The variables of HCCL that this backend reads, with their defaults and allowed values: the one place they are read.
//
// Read once, at the first call of HcclEnv::get(), as cann::sim::Env does for the device; a malformed value raises
// std::invalid_argument (ValueError in Python) naming the variable, its value and what is allowed. Thread-safe. Names
// and defaults: torch_npu's and HCCL's public environment variable references. No torch here.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/algorithm_choice.h"
#include "distributed/wire_codec.h"

namespace cann::hccl {

// What happens when an operation has failed and nobody asks for its outcome. kCleanUp: nothing more, as the
// communicator is dead anyway and every later operation raises. kTearDown: the process ends, see UnseenErrors.
enum class ErrorHandling { kCleanUp, kTearDown };

struct HcclEnv {
  // Value of a variable, nullptr when unset; what std::getenv is.
  using Lookup = std::function<const char*(const char* name)>;

  static const HcclEnv& get();
  // As read through `lookup` instead of the process environment.
  static HcclEnv from(const Lookup& lookup);

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
  // TORCH_HCCL_ASYNC_ERROR_HANDLING (older: HCCL_ASYNC_ERROR_HANDLING): 0 or 2 clean up, 1 or 3 tear down. Unset:
  // clean up, as errors reach the script through wait() and through every later operation.
  ErrorHandling error_handling = ErrorHandling::kCleanUp;
  // HCCL_ALGO: see algorithm_choice.h. Default: by size, ranks and topology.
  AlgorithmChoice algorithms;
  // TORCH_CANN_HCCL_WIRE: how float32 sums travel between hosts, see wire_codec.h. Default "exact".
  WireFormat wire;
  // HCCL_IF_IP: address of this host for the connections to other hosts. Default: none.
  std::string host_address;
  // HCCL_SOCKET_IFNAME: its network interface, by name; a leading "=" is allowed, lists are cut to their first name.
  // "^name" and "!=name" are not simulated and warned about. Default: none.
  std::string interface;
  // TORCH_HCCL_TRACE_BUFFER_SIZE: operations that the flight recorder keeps. Default 0, none.
  size_t trace_entries = 0;
  // TORCH_HCCL_DEBUG_INFO_TEMP_FILE: where it writes them, followed by the rank. Default "/tmp/hccl_trace_rank_".
  std::string trace_file = "/tmp/hccl_trace_rank_";

  // Checked, and without effect: TORCH_HCCL_BLOCKING_WAIT (older: HCCL_BLOCKING_WAIT; wait() always blocks the host
  // here), TORCH_HCCL_DESYNC_DEBUG (errors name the ranks that are out of step in any case), HCCL_DETERMINISTIC
  // (results always are), HCCL_EVENT_TIMEOUT, TORCH_HCCL_ENABLE_MONITORING, TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC,
  // TORCH_HCCL_DUMP_ON_TIMEOUT, TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC and TORCH_HCCL_COORD_CHECK_MILSEC (there is no
  // watchdog thread to supervise), TORCH_HCCL_HIGH_PRIORITY, TORCH_HCCL_ZERO_COPY (there is never a copy).

  // What is odd about the values, to be shown to the user once; one sentence each.
  std::vector<std::string> warnings;
};

}  // namespace cann::hccl
