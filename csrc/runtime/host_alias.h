#pragma once
// CPU aliases of npu tensors, and npu tensors over CPU results: how a CPU kernel runs on npu tensors without a copy.
//
// host_alias() is the simple form for code off the hot path (collectives, bindings). AliasScope is the one operators
// use: aliases come from a per-thread pool, results are retagged in place, and changes the kernel made to sizes or
// storage are carried back by write_back().

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <vector>

#include "runtime/storage.h"
#include "runtime/thread_state.h"

namespace cann {

// A CPU tensor over the same bytes, sizes, strides, dtype; keeps the memory alive. Dense strided npu tensors only
// (raises TypeError otherwise); a CPU tensor is returned as it is.
at::Tensor host_alias(const at::Tensor& tensor);

// The npu tensor over a CPU tensor whose memory is HBM (for example made under AllocationRedirect). Dense only.
at::Tensor npu_view_of_host(at::Tensor host, c10::Device device);

class AliasScope {
 public:
  AliasScope() { ensure_thread_ready(); }
  ~AliasScope();
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;

  // The CPU alias of an npu tensor that the kernel reads; tensors of other devices and undefined ones pass through.
  // `tensor` must outlive this scope. The first npu tensor fixes device(); a later one on another card, or a CPU tensor
  // with dimensions, is remembered for check_devices().
  at::Tensor alias(const at::Tensor& tensor) { return entry_for(tensor, /*written=*/false); }
  // The same without counting a reference: the alias (or `tensor` itself) lives as long as this scope.
  c10::MaybeOwned<at::Tensor> borrow(const at::Tensor& tensor) {
    return c10::MaybeOwned<at::Tensor>::borrowed(entry_for(tensor, /*written=*/false));
  }
  // alias() for a tensor the kernel writes, resizes or gives another storage: write_back() looks at these only, and not
  // even a CPU tensor without dimensions may stand in for an npu one.
  at::Tensor alias_written(const at::Tensor& tensor);
  // A member of a list whose tensors the kernel writes; a CPU tensor is treated as in alias().
  at::Tensor alias_written_member(const at::Tensor& tensor) { return entry_for(tensor, /*written=*/true); }
  // alias() for a temporary: the scope keeps it alive.
  at::Tensor alias_temporary(at::Tensor tensor);

  // The npu form of a kernel's result: the original tensor if the result is one of the aliases, a view if it shares an
  // alias's storage, else the result itself retagged to npu.
  at::Tensor wrap(at::Tensor&& result);

  // Carries sizes, strides, storages, conjugate and negative bits that the kernel changed on an alias back to the npu
  // tensor. Call after kernels that write in place, resize or set storages.
  void write_back();

  // Device named by a `device=` argument, for factories.
  void set_device(c10::Device device);
  // Card the operator runs on: that of the first npu tensor or device argument, else the current one.
  c10::DeviceIndex device() const { return device_ >= 0 ? device_ : current_device(); }

  // Raises RuntimeError "Expected all tensors to be on the same device, ..." naming `op` when alias() saw a mix.
  void check_devices(const char* op) const {
    if (C10_UNLIKELY(mixed_)) raise_mixed(op);
  }
  bool mixed() const { return mixed_; }
  // Operators that take CPU index tensors (index, index_put, copy) call this before check_devices().
  void allow_mixed() { mixed_ = false; }

  // The npu tensor that `alias` stands for, or nullptr. Valid while the scope lives.
  const at::Tensor* original_of(const at::Tensor& alias) const;

 private:
  struct Entry {
    at::Tensor alias;
    const at::Tensor* original;      // what the caller passed, or a member of temporaries_
    c10::StorageImpl* host_storage;  // the alias's storage when it was made; nullptr for non-dense layouts
    // An alias that is only read borrows its storage from the npu tensor, which saves two atomic operations.
    bool borrows_storage;
    bool written;
  };
  // The alias of `tensor`, or `tensor` itself. The reference is valid until the next call.
  const at::Tensor& entry_for(const at::Tensor& tensor, bool written);
  const at::Tensor& add_dense(const at::Tensor& tensor, bool written);
  // The npu storage already standing for a host storage in this scope, or none.
  c10::Storage npu_storage_for(c10::StorageImpl* host) const;
  [[noreturn]] void raise_mixed(const char* op) const;

  c10::SmallVector<Entry, 6> entries_;
  std::vector<std::unique_ptr<at::Tensor>> temporaries_;
  // Host storages that several results share, with the npu storage made for the first of them.
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> wrapped_;
  c10::DeviceIndex device_ = -1;
  bool mixed_ = false;
  c10::Device other_ = c10::Device(c10::kCPU);  // the second device of a mix
};

}  // namespace cann
