// The boxed path: any operator that has a CPU kernel, run on npu tensors through CPU aliases of its arguments.
// Slower than a direct kernel by the boxing (0.5-0.9 us), but it needs nothing written per operator.

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "aten/boxed.h"
#include "aten/observe.h"
#include "aten/register.h"
#include "aten/write_guard.h"
#include "runtime/allocation_redirect.h"
#include "runtime/errors.h"
#include "runtime/generator.h"
#include "runtime/host_alias.h"

namespace cann::aten {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

// Operators that take CPU tensors beside npu ones, as on the real device.
bool accepts_cpu_arguments(const std::string& name) {
  static const std::unordered_set<std::string_view> names{
      "aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
      "aten::_unsafe_index_put", "aten::_ctc_loss", "aten::_pack_padded_sequence", "aten::_nested_view_from_buffer",
      "aten::_nested_view_from_buffer_copy", "aten::_nested_from_padded",
      // only the quantization parameters of its tensor are read
      "aten::empty_quantized"};
  return names.contains(name);
}

// Results that stay on the host on every device: sizes that Python code reads.
bool result_stays_on_host(const std::string& name, size_t index) {
  static const std::unordered_set<std::string_view> sizes{"aten::_nested_tensor_size", "aten::_nested_tensor_strides",
                                                          "aten::_nested_tensor_storage_offsets"};
  return sizes.contains(name) || (name == "aten::_pack_padded_sequence" && index == 1);
}

bool takes_generator(const c10::Argument& argument) {
  const auto* optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, Stack* stack)
      : schema_(op.schema()),
        stack_(stack),
        begin_(stack->size() - schema_.arguments().size()),
        originals_(stack->begin() + static_cast<ptrdiff_t>(begin_), stack->end()) {}

  void run(const c10::OperatorHandle& op, DispatchKey key) {
    for (size_t i = 0; i < originals_.size(); ++i) alias_argument(i);
    if (scope_.mixed() && accepts_cpu_arguments(schema_.name())) scope_.allow_mixed();
    scope_.check_devices(schema_.name().c_str());
    for (size_t i = 0; i < originals_.size(); ++i) convert_generator(i);
    {
      AllocationRedirect redirect(result_on_host_ ? AllocationRedirect::kHost : scope_.device());
      op.redispatchBoxed(c10::DispatchKeySet(key), stack_);
    }
    scope_.write_back();
    if (result_on_host_) return;
    for (size_t i = 0; i < originals_.size(); ++i) {
      if (is_written(i) && originals_[i].isTensorList()) bump_versions(originals_[i].toTensorVector());
    }
    const size_t results = schema_.returns().size();
    for (size_t i = 0; i < results; ++i) wrap_result((*stack_)[stack_->size() - results + i], i);
  }

 private:
  bool is_written(size_t i) const {
    const auto* info = schema_.arguments()[i].alias_info();
    return info != nullptr && info->isWrite();
  }

  void alias_argument(size_t i) {
    const IValue& original = originals_[i];
    IValue& argument = (*stack_)[begin_ + i];
    if (original.isTensor()) {
      const bool written = is_written(i);
      at::Tensor alias = written ? scope_.alias_written(original.toTensor()) : scope_.alias(original.toTensor());
      if (written) check_host_can_write(alias);
      argument = std::move(alias);
    } else if (original.isTensorList() || original.isOptionalTensorList()) {
      alias_list(original, argument, is_written(i));
    } else if (original.isDevice()) {
      if (original.toDevice().type() == kNPU) {
        scope_.set_device(original.toDevice());
        argument = c10::Device(c10::kCPU);
      } else {
        result_on_host_ = true;  // `.to("cpu")` and its kin ask for it by name
      }
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!original.isStorage(), "npu: ", schema_.name(),
                                " takes a Storage, which has no CPU form; an npu kernel must be written for it");
  }

  void alias_list(const IValue& original, IValue& argument, bool written) {
    const bool optional = original.isOptionalTensorList();
    c10::List<at::Tensor> tensors;
    c10::List<std::optional<at::Tensor>> optionals;
    for (const IValue& item : original.toListRef()) {
      if (!optional) {
        tensors.push_back(written ? scope_.alias_written_member(item.toTensor()) : scope_.alias(item.toTensor()));
      } else {
        optionals.push_back(item.isTensor() ? std::optional(scope_.alias(item.toTensor())) : std::nullopt);
      }
    }
    argument = optional ? IValue(std::move(optionals)) : IValue(std::move(tensors));
  }

  void convert_generator(size_t i) {
    if (!originals_[i].isGenerator() && !(originals_[i].isNone() && takes_generator(schema_.arguments()[i]))) return;
    const auto given = originals_[i].isNone() ? std::nullopt : std::optional(originals_[i].toGenerator());
    (*stack_)[begin_ + i] = host_generator(given, scope_.device());
  }

  void wrap_result(IValue& result, size_t index) {
    if (result_stays_on_host(schema_.name(), index)) return;
    if (result.isTensor()) {
      result = scope_.wrap(std::move(result).toTensor());
    } else if (result.isTensorList()) {
      auto list = std::move(result).toTensorList();
      c10::List<at::Tensor> wrapped;
      wrapped.reserve(list.size());
      for (size_t k = 0; k < list.size(); ++k) wrapped.push_back(scope_.wrap(list.extract(k)));
      result = std::move(wrapped);
    }
  }

  const c10::FunctionSchema& schema_;
  Stack* stack_;
  size_t begin_;
  std::vector<IValue> originals_;  // declared before scope_: aliases point at these tensors
  AliasScope scope_;
  bool result_on_host_ = false;
};

// Runs the call and tells the simulator what it read and wrote.
void run_observed(const c10::OperatorHandle& op, Stack* stack, DispatchKey key) {
  const Observed facts(op);
  simulator::Observation seen(op.schema().name().c_str(), facts.id, facts.pointwise, facts.blocking);
  const size_t count = op.schema().arguments().size();
  const std::vector<IValue> arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  observe_arguments(seen, facts, arguments);
  BoxedCall(op, stack).run(op, key);
  for (size_t i = op.schema().returns().size(); i > 0; --i) observe_result(seen, (*stack)[stack->size() - i]);
  seen.finish();
}

template <DispatchKey kHostKey>
void boxed_kernel(const c10::OperatorHandle& op, Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(kHostKey), "npu: operator ", op.schema().name(),
                              " is not available: it has neither an npu kernel nor a ", kHostKey,
                              " kernel that could run in its place");
  if constexpr (kHostKey != DispatchKey::CPU) {
    // Else the collective would look for a process group of the aliases' device.
    TORCH_CHECK(!op.schema().name().starts_with("c10d::"), "Tensors must be NPU and dense, but ", op.schema().name(),
                " got a sparse, nested or quantized one. Pass tensor.to_dense() or its parts.",
                error_suffix(ErrModule::DIST, ErrCode::TYPE));
  }
  if (simulator::watching()) return run_observed(op, stack, kHostKey);
  BoxedCall(op, stack).run(op, kHostKey);
}

struct Path {
  DispatchKey npu;
  DispatchKey host;
  torch::CppFunction (*make)();
};

template <DispatchKey kNpuKey, DispatchKey kHostKey>
constexpr Path path() {
  return {kNpuKey, kHostKey, [] { return torch::CppFunction::makeFromBoxedFunction<&boxed_kernel<kHostKey>>(); }};
}

}  // namespace

void run_on_host(const c10::OperatorHandle& op, Stack* stack) { BoxedCall(op, stack).run(op, DispatchKey::CPU); }

void register_boxed() {
  constexpr Path paths[] = {
      path<DispatchKey::PrivateUse1, DispatchKey::CPU>(),
      path<DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU>(),
      path<DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU>(),
      path<DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU>(),
      path<DispatchKey::QuantizedPrivateUse1, DispatchKey::QuantizedCPU>(),
  };
  static auto& libraries = *new std::vector<std::unique_ptr<torch::Library>>;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const Path& p : paths) {
    auto& aten = *libraries.emplace_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", p.npu, __FILE__, __LINE__));
    // Named registrations, not only the fallback below: else operators with a composite kernel would take that one,
    // which is slower and allocates in pieces.
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(p.host)) {
      if (name.getNamespace() != "aten") continue;
      const auto op = dispatcher.findOp(name);
      if (!op.has_value() || op->hasKernelForDispatchKey(p.npu)) continue;
      aten.impl(toString(name).c_str(), p.make());
    }
    auto& all =
        *libraries.emplace_back(std::make_unique<torch::Library>(torch::Library::IMPL, "_", p.npu, __FILE__, __LINE__));
    all.fallback(p.make());
  }
}

}  // namespace cann::aten
