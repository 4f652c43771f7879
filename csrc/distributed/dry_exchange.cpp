#include "distributed/dry_exchange.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

#include "runtime/dry_run.h"
#include "runtime/host_alias.h"

namespace cann::hccl {
namespace {

std::unique_ptr<DryCourier>& courier() {
  static auto* const held = new std::unique_ptr<DryCourier>();  // outlives the groups of the interpreter's exit
  return *held;
}

}  // namespace

DryCourier* dry_courier() { return courier().get(); }
void set_dry_courier(std::unique_ptr<DryCourier> given) { courier() = std::move(given); }

bool is_carried(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.nbytes() <= kKnownBytes; }

std::optional<std::string> known_bytes(const at::Tensor& tensor) {
  if (!values_known(tensor)) return std::nullopt;
  const at::Tensor values = host_alias(tensor).contiguous();
  return std::string(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
}

DryReceipt::DryReceipt(at::Tensor tensor, int peer, std::string message, bool shared)
    : tensor_(std::move(tensor)), peer_(peer), message_(std::move(message)), shared_(shared) {
  set_values_known(tensor_, false);
}

void DryReceipt::collect() {
  std::call_once(collected_, [this] {
    const std::optional<std::string> bytes = dry_courier()->fetch(peer_, message_, shared_);
    if (!bytes) {
      TORCH_CHECK(!tensor_.is_cpu(), "dry run: a CPU tensor of ", tensor_.sizes(), " is received from rank ", peer_,
                  ", which never sends it or does not know its values");
      return;
    }
    TORCH_CHECK(bytes->size() == tensor_.nbytes(), "dry run: rank ", peer_, " sends ", bytes->size(),
                " bytes where this rank receives a tensor of ", tensor_.nbytes(), " bytes");
    if (!tensor_.is_cpu() && !can_become_known(tensor_)) return;
    at::Tensor values = at::empty(tensor_.sizes(), tensor_.options().device(at::kCPU));
    std::memcpy(values.mutable_data_ptr(), bytes->data(), bytes->size());
    host_alias(tensor_).copy_(values);
    set_values_known(tensor_, true);
  });
}

}  // namespace cann::hccl
