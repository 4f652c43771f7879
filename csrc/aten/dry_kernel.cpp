// The kernel of every operator in a dry run: shapes from the Meta kernel (or from memory of it), memory from the
// caching allocator, time from the cost model, and no arithmetic, except on small tensors whose values are known.

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <utility>

#include "aten/boxed.h"
#include "aten/dry_memo.h"
#include "aten/dry_values.h"
#include "aten/register.h"
#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/storage.h"
#include "runtime/thread_state.h"

namespace cann::aten {
namespace {

using c10::DispatchKey;
using c10::IValue;
using c10::StorageImpl;
using c10::TensorImpl;
using torch::jit::Stack;

// ---- Meta tensors that stand for npu ones while a Meta kernel runs. Those over one npu storage share a storage too.

class MetaAliases {
 public:
  IValue of(const IValue& value) {
    if (value.isTensor()) return of(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const IValue& item : value.toListRef()) list.push_back(of(item.toTensor()));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& item : value.toListRef()) {
        const bool present = item.isTensor() && item.toTensor().defined();
        list.push_back(present ? std::optional(of(item.toTensor())) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) return value.toDevice().type() == kNPU ? c10::Device(c10::kMeta) : value.toDevice();
    return value.isGenerator() ? IValue() : value;
  }

  at::Tensor of(const at::Tensor& tensor) {
    // A CPU number must stay one: a Meta tensor in its place loses its rank in type promotion.
    if (!tensor.defined() || tensor.is_meta() || (tensor.is_cpu() && tensor.dim() == 0)) return tensor;
    TensorImpl* impl = tensor.unsafeGetTensorImpl();
    for (const auto& [original, alias] : aliases_) {
      if (original == impl) return alias;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(impl->key_set().has(DispatchKey::Dense), "npu dry run: tensors of layout ",
                                tensor.layout(), " are not simulated");
    at::Tensor alias = at::detail::make_tensor<TensorImpl>(storage_for(impl->unsafe_storage()),
                                                           c10::DispatchKeySet(DispatchKey::Meta), impl->dtype());
    alias.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    if (impl->is_wrapped_number()) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
    alias._set_conj(tensor.is_conj());
    alias._set_neg(tensor.is_neg());
    aliases_.emplace_back(impl, alias);
    return alias;
  }

  // The tensor that `alias` stands for, or nullptr.
  TensorImpl* original_of(const TensorImpl* alias) const {
    for (const auto& [original, meta] : aliases_) {
      if (meta.unsafeGetTensorImpl() == alias) return original;
    }
    return nullptr;
  }
  // A tensor over the same storage as `alias`, or nullptr.
  TensorImpl* sharing_storage(const TensorImpl& alias) const {
    const StorageImpl* storage = alias.unsafe_storage().unsafeGetStorageImpl();
    for (const auto& [original, meta] : aliases_) {
      if (original->device().type() == kNPU &&
          meta.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
        return original;
      }
    }
    return nullptr;
  }
  const auto& all() const { return aliases_; }

 private:
  c10::Storage storage_for(const c10::Storage& npu) {
    for (const auto& [original, storage] : storages_) {
      if (original == npu.unsafeGetStorageImpl()) return storage;
    }
    c10::Storage storage(c10::make_intrusive<StorageImpl>(
        StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(npu.nbytes())),
        c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta), /*resizable=*/true));
    storages_.emplace_back(npu.unsafeGetStorageImpl(), storage);
    return storage;
  }

  c10::SmallVector<std::pair<TensorImpl*, at::Tensor>, 8> aliases_;
  c10::SmallVector<std::pair<StorageImpl*, c10::Storage>, 8> storages_;
};

// ---- One call

class DryOperator {
 public:
  DryOperator(const c10::OperatorHandle& op, const DryFacts& facts, Stack* stack)
      : op_(op),
        stack_(stack),
        facts_(facts),
        count_(op.schema().arguments().size()),
        begin_(stack->size() - count_),
        call_(op, facts_, arguments()) {}

  void run() {
    check_devices();
    std::shared_ptr<const DryEntry> entry = DryMemo::get().find(call_);
    if (entry != nullptr && runs_on_known_values(*entry)) return run_for_real(entry->row);
    if (entry == nullptr) {
      if (!call_.cacheable) raise_unsupported();
      MetaAliases aliases;
      Stack meta = run_meta(aliases);
      auto fresh = std::make_shared<DryEntry>();
      describe_results(meta, aliases, *fresh);
      if (runs_on_known_values(*fresh)) {
        fresh->row = make_row(*fresh);
        if (!changed_geometry(aliases)) DryMemo::get().insert(call_, fresh);
        return run_for_real(fresh->row);
      }
      const bool changed = apply_changes(aliases);
      fresh->row = make_row(*fresh);
      if (!changed) DryMemo::get().insert(call_, fresh);
      entry = std::move(fresh);
    }
    forget_written_values();
    finish(*entry);
  }

 private:
  std::span<const IValue> arguments() const { return {stack_->data() + begin_, count_}; }
  c10::DeviceIndex device() const { return call_.device >= 0 ? call_.device : current_device(); }

  void check_devices() const {
    if (!call_.mixed || call_.device < 0) return;
    const std::string& name = op_.schema().name();
    if (name.find("index") != std::string::npos || name.find("_foreach_copy") != std::string::npos) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                c10::Device(kNPU, device()), " and another! (when checking arguments of ", name,
                "; move them to one device with .to())");
  }

  [[noreturn]] void raise_unsupported() const {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "npu dry run: ", op_.schema().name(),
                                " was called with an argument that is not simulated: only dense tensors, numbers, "
                                "strings and lists of these are");
  }

  // ---- values

  // Whether the operator can run for real: everything it reads is known, and all it makes is small.
  bool runs_on_known_values(const DryEntry& entry) const {
    if (facts_.random || entry.largest_result > kKnownBytes) return false;
    const auto values = arguments();
    bool any = entry.largest_result > 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool replaced = facts_.observed.overwritten >> i & 1;
      const bool written = facts_.observed.written >> i & 1;
      const auto fits = [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return true;
        if (tensor.device().type() != kNPU) return tensor.nbytes() <= kKnownBytes;
        any = true;
        return replaced ? can_become_known(tensor) : values_known(tensor) && (!written || can_become_known(tensor));
      };
      if (values[i].isTensor() && !fits(values[i].toTensor())) return false;
      if (values[i].isTensorList() || values[i].isOptionalTensorList()) {
        for (const IValue& item : values[i].toListRef()) {
          if (item.isTensor() && !fits(item.toTensor())) return false;
        }
      }
    }
    return any;
  }

  void run_for_real(uint32_t row) {
    const std::vector<IValue> kept(stack_->begin() + static_cast<ptrdiff_t>(begin_), stack_->end());
    run_on_host(op_, stack_);
    for_each_written(kept, [](const at::Tensor& tensor) { set_values_known(tensor, true); });
    for (size_t i = begin_; i < stack_->size(); ++i) {
      const IValue& result = (*stack_)[i];
      if (result.isTensor()) set_values_known(result.toTensor(), true);
      if (result.isTensorList()) {
        for (const at::Tensor& tensor : result.toTensorVector()) set_values_known(tensor, true);
      }
    }
    simulator::launch(row, device());
  }

  void for_each_written(std::span<const IValue> values, const auto& act) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!(facts_.observed.written >> i & 1)) continue;
      if (values[i].isTensor() && values[i].toTensor().defined()) act(values[i].toTensor());
      if (values[i].isTensorList()) {
        for (const IValue& item : values[i].toListRef()) act(item.toTensor());
      }
    }
  }

  void forget_written_values() const {
    if (keeps_values_by_assumption(op_, arguments())) return;
    for_each_written(arguments(), [](const at::Tensor& tensor) { set_values_known(tensor, false); });
  }

  // ---- shapes

  Stack run_meta(MetaAliases& aliases) const {
    TORCH_CHECK_NOT_IMPLEMENTED(op_.hasComputedKernelForDispatchKey(DispatchKey::Meta), "npu dry run: operator ",
                                op_.schema().name(),
                                " has no Meta kernel, so the shapes of its results are not known without running it");
    Stack meta;
    for (const IValue& value : arguments()) meta.push_back(aliases.of(value));
    op_.redispatchBoxed(c10::DispatchKeySet(DispatchKey::Meta), &meta);
    return meta;
  }

  void describe_results(const Stack& meta, const MetaAliases& aliases, DryEntry& entry) const {
    const size_t results = op_.schema().returns().size();
    for (size_t i = 0; i < results; ++i) {
      entry.results.push_back(describe(meta[meta.size() - results + i], facts_.returned_argument[i], aliases));
      const DryResult& result = entry.results.back();
      entry.largest_result = std::max(entry.largest_result, result.bytes);
      for (const DryResult& item : result.list) entry.largest_result = std::max(entry.largest_result, item.bytes);
    }
  }

  DryResult describe(const IValue& value, int argument, const MetaAliases& aliases) const {
    DryResult result;
    if (argument >= 0 && arguments()[static_cast<size_t>(argument)].isTensor()) {
      result.kind = DryResult::kArgument;
      result.source = tensors_before(static_cast<size_t>(argument));
    } else if (argument >= 0) {
      result.kind = DryResult::kArgumentList;
      result.source = argument;
    } else if (value.isTensor()) {
      return describe(value.toTensor(), aliases);
    } else if (value.isTensorList()) {
      result.kind = DryResult::kTensorList;
      for (const IValue& item : value.toListRef()) result.list.push_back(describe(item.toTensor(), aliases));
    } else {
      result.kind = DryResult::kValue;
      result.value = value;
    }
    return result;
  }

  DryResult describe(const at::Tensor& tensor, const MetaAliases& aliases) const {
    DryResult result;
    if (!tensor.defined()) return result;
    const TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (const TensorImpl* same = aliases.original_of(&impl)) {
      result.kind = DryResult::kArgument;
      result.source = position_of(same);
      return result;
    }
    result.sizes.assign(impl.sizes().begin(), impl.sizes().end());
    result.strides.assign(impl.strides().begin(), impl.strides().end());
    result.dtype = impl.dtype();
    result.conjugate = tensor.is_conj();
    result.negative = tensor.is_neg();
    if (const TensorImpl* base = aliases.sharing_storage(impl)) {
      result.kind = DryResult::kView;
      result.source = position_of(base);
      result.offset = impl.storage_offset() - base->storage_offset();
      return result;
    }
    result.kind = DryResult::kFresh;
    result.bytes = at::detail::computeStorageNbytes(impl.sizes(), impl.strides(), impl.dtype().itemsize());
    return result;
  }

  int position_of(const TensorImpl* tensor) const {
    return static_cast<int>(std::ranges::find(call_.tensors, tensor) - call_.tensors.begin());
  }
  // Tensors among the arguments before argument `i`, flattened as call_.tensors are.
  int tensors_before(size_t i) const {
    int count = 0;
    for (const IValue& value : arguments().first(i)) {
      if (value.isTensor()) ++count;
      if (value.isList())
        count += static_cast<int>(
            std::ranges::count_if(value.toListRef(), [](const IValue& item) { return item.isTensor(); }));
    }
    return count;
  }

  static bool differs(const TensorImpl& a, const TensorImpl& b) {
    return a.sizes() != b.sizes() || a.strides() != b.strides() || a.storage_offset() != b.storage_offset();
  }
  static bool changed_geometry(const MetaAliases& aliases) {
    return std::ranges::any_of(aliases.all(), [](const auto& pair) {
      return pair.first->device().type() == kNPU && differs(*pair.first, *pair.second.unsafeGetTensorImpl());
    });
  }

  // Sizes that the kernel changed (resize_, out=, t_) are carried over to the npu tensors.
  static bool apply_changes(const MetaAliases& aliases) {
    bool changed = false;
    for (const auto& [original, meta] : aliases.all()) {
      const TensorImpl& alias = *meta.unsafeGetTensorImpl();
      if (original->device().type() != kNPU || !differs(*original, alias)) continue;
      changed = true;
      const size_t needed = at::detail::computeStorageNbytes(alias.sizes(), alias.strides(), alias.dtype().itemsize(),
                                                             static_cast<size_t>(alias.storage_offset()));
      auto* storage = dynamic_cast<NPUStorageImpl*>(original->unsafe_storage().unsafeGetStorageImpl());
      if (storage != nullptr && needed > storage->nbytes()) storage->resize_bytes(needed);
      original->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }
    return changed;
  }

  // ---- results

  // Costed from shapes alone: the results are described, not made.
  uint32_t make_row(const DryEntry& entry) const {
    const Observed& facts = facts_.observed;
    simulator::Observation seen(op_.schema().name().c_str(), facts.id, facts.pointwise);
    observe_arguments(seen, facts, arguments());
    std::vector<at::Tensor> results;
    bool works = facts.written != 0;
    const auto add = [&](const DryResult& result) {
      if (result.kind != DryResult::kFresh) return;
      works = true;
      results.push_back(
          at::empty_strided(result.sizes, result.strides, at::TensorOptions(result.dtype).device(c10::kMeta)));
      seen.overwrite(results.back());
    };
    for (const DryResult& result : entry.results) {
      add(result);
      for (const DryResult& item : result.list) add(item);
    }
    sim::Cost cost;
    if (works) {
      cost = seen.cost();
    } else {
      cost.engine = sim::Engine::kNone;
    }
    return simulator::add_row(op_.schema().name().substr(op_.schema().name().find("::") + 2), cost);
  }

  void finish(const DryEntry& entry) {
    c10::SmallVector<IValue, 4> results;
    for (const DryResult& result : entry.results) results.push_back(make(result));
    torch::jit::drop(*stack_, count_);
    for (IValue& result : results) stack_->push_back(std::move(result));
    simulator::launch(entry.row, device());
  }

  IValue make(const DryResult& result) const {
    switch (result.kind) {
      case DryResult::kUndefined:
        return at::Tensor();
      case DryResult::kArgument:
        return at::Tensor(
            c10::intrusive_ptr<TensorImpl>::reclaim_copy(call_.tensors[static_cast<size_t>(result.source)]));
      case DryResult::kView:
        return make_view(result, *call_.tensors[static_cast<size_t>(result.source)]);
      case DryResult::kFresh:
        return make_fresh(result);
      case DryResult::kValue:
        return result.value;
      case DryResult::kArgumentList:
        return arguments()[static_cast<size_t>(result.source)];
      case DryResult::kTensorList: {
        c10::List<at::Tensor> list;
        list.reserve(result.list.size());
        for (const DryResult& item : result.list) list.push_back(make(item).toTensor());
        return list;
      }
    }
    return IValue();
  }

  static void set_bits(const at::Tensor& tensor, const DryResult& result) {
    if (result.conjugate) tensor._set_conj(true);
    if (result.negative) tensor._set_neg(true);
  }

  // A view needs its base's keys: with bare ones it would become an inference tensor.
  static at::Tensor make_view(const DryResult& result, const TensorImpl& base) {
    at::Tensor view = at::detail::make_tensor<TensorImpl>(TensorImpl::VIEW, c10::Storage(base.unsafe_storage()),
                                                          base.key_set(), result.dtype);
    view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides,
                                                      base.storage_offset() + result.offset);
    view._set_conj(result.conjugate);
    view._set_neg(result.negative);
    return view;
  }

  at::Tensor make_fresh(const DryResult& result) const {
    at::Tensor tensor =
        at::detail::make_tensor<TensorImpl>(c10::Storage(make_npu_storage(result.bytes, c10::Device(kNPU, device()))),
                                            c10::DispatchKeySet(DispatchKey::PrivateUse1), result.dtype);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides);
    set_bits(tensor, result);
    return tensor;
  }

  const c10::OperatorHandle& op_;
  Stack* stack_;
  const DryFacts& facts_;
  size_t count_, begin_;
  DryCall call_;
};

void dry_kernel(const c10::OperatorHandle& op, Stack* stack) {
  ensure_thread_ready();
  const DryFacts& facts = dry_facts(op);
  if (facts.may_depend_on_values && answer_from_values(op, stack)) return;
  DryOperator(op, facts, stack).run();
}

}  // namespace

void register_dry(torch::Library& aten, torch::Library& all) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto kernel = [] { return torch::CppFunction::makeFromBoxedFunction<&dry_kernel>(); };
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(DispatchKey::CPU)) {
    if (name.getNamespace() != "aten") continue;
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && !op->hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
      aten.impl(toString(name).c_str(), kernel());
    }
  }
  // One kernel each on the device, where the CPU has none of its own.
  for (const char* name : {"convolution", "convolution_backward", "_scaled_dot_product_fused_attention_overrideable",
                           "_scaled_dot_product_fused_attention_overrideable_backward"}) {
    aten.impl(name, kernel());
  }
  all.fallback(kernel());
}

}  // namespace cann::aten
