#pragma once
// What an operator gives for given shapes, remembered: a dry run's operators repeat the same shapes step after step,
// and PyTorch's Meta kernels, which know the answer, take 30 to 1,600 us where a look-up takes one.
//
// The key is the operator, the geometry and dtype of its tensors and its other arguments. Numbers with a fraction are
// left out unless the operator computes sizes from them, since optimizers pass other ones at each step.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "aten/observe.h"

namespace cann::aten {

// What is known of an operator before it is called.
struct DryFacts {
  explicit DryFacts(const c10::OperatorHandle& op);
  Observed observed;
  std::vector<int> returned_argument;  // per result: the argument it is by the schema, or -1
  bool random;                         // draws random numbers
  bool sized_by_fractions;             // arange and its like
  bool may_depend_on_values;           // answer_from_values() is to be asked
};
// Made at the first call, then kept. Thread-safe.
const DryFacts& dry_facts(const c10::OperatorHandle& op);

// How to make one result.
struct DryResult {
  enum Kind : uint8_t { kUndefined, kArgument, kView, kFresh, kValue, kTensorList, kArgumentList };
  Kind kind = kUndefined;
  int source = -1;     // kArgument, kView: index among the call's tensors; kArgumentList: of the argument
  int64_t offset = 0;  // kView: relative to the source's storage offset
  c10::SmallVector<int64_t, 5> sizes, strides;
  caffe2::TypeMeta dtype;
  size_t bytes = 0;  // kFresh: of the storage
  bool conjugate = false, negative = false;
  c10::IValue value;
  std::vector<DryResult> list;
};

struct DryEntry {
  std::vector<uint64_t> key;
  std::vector<DryResult> results;
  size_t largest_result = 0;  // bytes of the largest fresh tensor
  uint32_t row = 0;           // simulator's row; its engine is kNone when nothing runs on the device
};

// A call's arguments, flattened.
struct DryCall {
  DryCall(const c10::OperatorHandle& op, const DryFacts& facts, std::span<const c10::IValue> arguments);

  c10::SmallVector<uint64_t, 96> key;
  c10::SmallVector<c10::TensorImpl*, 12> tensors;  // undefined ones included
  c10::DeviceIndex device = -1;                    // card of the first npu tensor or device argument
  bool cacheable = true;
  bool mixed = false;  // tensors of two cards, or a CPU tensor with dimensions beside npu ones

 private:
  void add(const c10::IValue& value, bool fractions);
  void add_tensor(c10::TensorImpl* tensor);
};

class DryMemo {
 public:
  static DryMemo& get();
  // nullptr if not remembered. The entry stays valid while the caller holds it.
  std::shared_ptr<const DryEntry> find(const DryCall& call) const;
  void insert(const DryCall& call, const std::shared_ptr<DryEntry>& entry);

 private:
  // Shapes that change at every step would fill memory; then everything is forgotten once.
  static constexpr size_t kMaxEntries = 1 << 17;
  mutable std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::shared_ptr<const DryEntry>> entries_;
};

}  // namespace cann::aten
