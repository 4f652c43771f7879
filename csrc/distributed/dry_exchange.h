#pragma once
// Values that ranks of a dry run tell each other: small tensors of which the sender knows what is in them (shapes,
// object sizes and pickled objects that pipeline stages exchange, seeds that a root broadcasts).
//
// Each rank runs in a process of its own. A DryCourier carries messages between them and starts the ranks that are
// asked for; npu-plan has one (torch_cann/plan/exchange.py). Without a courier every received value is unknown.
// Messages have names that sender and receiver derive from group, ranks and count. Thread-safe.

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cann::hccl {

class DryCourier {
 public:
  virtual ~DryCourier() = default;
  // This rank has something to do with global rank `peer`, which therefore has to run.
  virtual void meet(int peer) = 0;
  // Publishes the bytes of a message, or that nobody knows them. `shared`: all members of a group may fetch it.
  virtual void post(const std::string& message, const std::optional<std::string>& bytes, bool shared) = 0;
  // Waits for what `peer` posts. Nothing if it does not know, or never posts. `shared` as in post().
  virtual std::optional<std::string> fetch(int peer, const std::string& message, bool shared) = 0;
};

// nullptr until set, once per process and before the first group is made.
DryCourier* dry_courier();
void set_dry_courier(std::unique_ptr<DryCourier> courier);

// Whether the values of `tensor` are carried at all: CPU tensors, and npu tensors that can have known values.
bool is_carried(const at::Tensor& tensor);
// The contents of `tensor`, or nothing if they are not known.
std::optional<std::string> known_bytes(const at::Tensor& tensor);

// A tensor under way to this rank: unknown from construction until collect().
class DryReceipt {
 public:
  DryReceipt(at::Tensor tensor, int peer, std::string message, bool shared);
  // Waits for the message and fills the tensor in, the first time it is called. Raises RuntimeError if the sender's
  // tensor has another size, and for a CPU tensor whose values never come.
  void collect();

 private:
  const at::Tensor tensor_;
  const int peer_;
  const std::string message_;
  const bool shared_;
  std::once_flag collected_;
};
using DryReceipts = std::vector<std::shared_ptr<DryReceipt>>;

}  // namespace cann::hccl
