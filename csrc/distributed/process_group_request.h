#pragma once
// What the files of ProcessGroupHCCL share: an operation that has passed its checks, on its way to the engine.

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/process_group_hccl.h"
#include "runtime/errors.h"
#include "runtime/host_alias.h"

namespace cann::hccl {

inline std::string suffix(ErrCode code) { return error_suffix(ErrModule::DIST, code); }

// The host's view of npu tensors, and what keeps it valid.
struct HostMemory {
  explicit HostMemory(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      aliases.push_back(host_alias(tensor));
      const at::Tensor& alias = aliases.back();
      spans.push_back({static_cast<std::byte*>(alias.data_ptr()), alias.nbytes()});
    }
  }
  std::vector<at::Tensor> aliases;
  std::vector<Span> spans;
};

// An operation that has passed its checks.
struct ProcessGroupHCCL::Request {
  c10d::OpType op;
  const char* title;
  Tensors inputs;
  Tensors outputs;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool async = true;
  Call call;
  c10::Device device = outputs.empty() ? inputs.at(0).device() : outputs[0].device();
};

// What engines are told of an operation on tensors like `tensor`.
inline Call call_for(const at::Tensor& tensor, int64_t root = -1) {
  Call call;
  call.dtype = static_cast<DataType>(tensor.scalar_type());
  call.layout = layout_of(tensor);
  call.root = static_cast<int>(root);
  return call;
}

}  // namespace cann::hccl
