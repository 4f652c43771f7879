#pragma once
// What PyTorch's profilers learn of a communication: an event "record_param_comms" with its name, elements, data type
// and ranks, as c10d's own backends leave one.

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace cann::hccl {

struct CommsRecord {
  std::string_view title;  // "hccl:all_reduce"
  uint64_t sequence;
  bool is_p2p;
  bool is_async;
  int rank;  // in the group; by PyTorch's convention the peer of a send or receive, the root of what has one
  const std::string& group;
  const std::vector<uint64_t>& global_ranks;  // of the group's members; empty: all there are
  int size;
};

// Global ranks as PyTorch describes them, first and distance: {-1, -1} where the distances differ.
inline std::pair<int, int> start_and_stride(const std::vector<uint64_t>& ranks) {
  if (ranks.empty()) return {0, 1};
  const auto first = static_cast<int>(ranks[0]);
  if (ranks.size() == 1) return {first, 0};
  const auto stride = static_cast<int>(ranks[1]) - first;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (static_cast<int>(ranks[i]) != first + static_cast<int>(i) * stride) return {-1, -1};
  }
  return {first, stride};
}

// Runs `body` inside the event if anybody listens, else just runs it.
template <typename Body>
void recorded(const CommsRecord& what, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
              Body body) {
  if (!at::hasCallbacks()) {
    body();
    return;
  }
  const auto elements = [](const std::vector<at::Tensor>& tensors) {
    int64_t sum = 0;
    for (const at::Tensor& tensor : tensors) sum += tensor.numel();
    return sum;
  };
  const std::vector<at::Tensor>& some = inputs.empty() ? outputs : inputs;
  const auto [start, stride] = start_and_stride(what.global_ranks);
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      std::make_tuple(static_cast<int64_t>(what.sequence), what.is_p2p), std::make_tuple(what.group, std::string()),
      inputs, outputs, what.rank, std::string(what.title.substr(what.title.find(':') + 1)), elements(inputs),
      elements(outputs), some.empty() ? at::kByte : some[0].scalar_type(), std::vector<int64_t>(),
      std::vector<int64_t>(), start, stride, what.size, what.is_async);
  body();
}

}  // namespace cann::hccl
