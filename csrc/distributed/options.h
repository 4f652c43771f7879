#pragma once
// ProcessGroupHCCL.Options: what a user may set on a process group. A plain value; owned by the group once passed.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <map>
#include <optional>
#include <string>
#include <variant>

#include "distributed/mesh_engine.h"

namespace cann::hccl {

// A value of hccl_config. Not one of the two allowed types: the name of the type it has.
struct UnsupportedType {
  std::string name;
};
using ConfigValue = std::variant<int64_t, std::string, UnsupportedType>;
using Config = std::map<std::string, ConfigValue>;

struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("hccl", timeout), op_timeout(kBackendDefaultTimeout) {}

  // Limit for a single operation; the smaller of it and `timeout` counts.
  std::chrono::milliseconds op_timeout;
  bool is_high_priority_stream = false;
  std::string group_id;

  // Raises RuntimeError when a known key has a value of the wrong type; warns about an unknown key, which has no
  // effect.
  void set_config(Config config);
  const Config& config() const { return config_; }
  // hccl_buffer_size of the configuration, else HCCL_BUFFSIZE: MB of each of the communicator's two buffers.
  size_t buffer_megabytes() const;
  // group_name of the configuration, or "": the name to give the communicator.
  std::string communicator_name() const;

  // How float32 sums travel between hosts: one of wire_codec.h's forms, or "" for what TORCH_CANN_HCCL_WIRE says. Must
  // be the same on all ranks. Raises ValueError.
  void set_wire(const std::string& text);
  std::string wire() const { return wire_ ? wire_->text() : ""; }
  // That, and hccl_algo of the configuration, else HCCL_ALGO.
  WireOptions wire_options() const;

 private:
  Config config_;
  std::optional<WireFormat> wire_;
  std::optional<AlgorithmChoice> algorithms_;
};

}  // namespace cann::hccl
