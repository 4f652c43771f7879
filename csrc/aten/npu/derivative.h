#pragma once
// Gradients of npu operators: a Node made from a kernel's signature and a derivative function, so that an operator's
// formula is a few lines and nothing about saving and unpacking is written twice.
//
//   variable_list swiglu_derivative(Context<swiglu>& c) {
//     return {swiglu_backward(c.grad(0), c.input<0>(), c.input<1>())};
//   }
//
// The function returns one gradient (or an undefined tensor) for each tensor parameter of the kernel, in order, lists
// excluded. It runs at most once for each forward, on the thread of backward().

#include <ATen/autocast_mode.h>
#include <ATen/core/VariableHooksInterface.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/device.h"

namespace cann::aten::npu {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Positions of arguments or results.
template <size_t... kIndex>
struct Saves {
  static constexpr bool contains(size_t i) { return ((kIndex == i) || ...); }
};

// ---- How one argument is kept until backward: tensors as SavedVariable if asked for, the rest by value.

template <class T>
struct Kept {
  Kept(const T& value, bool) : value_(value) {}
  const T& get(const c10::intrusive_ptr<torch::autograd::Node>&) const { return value_; }
  void release() {}
  T value_;
};

template <>
struct Kept<at::Tensor> {
  Kept(const at::Tensor& tensor, bool save) {
    if (save && tensor.defined()) saved_ = SavedVariable(tensor, /*is_output=*/false);
  }
  at::Tensor get(const c10::intrusive_ptr<torch::autograd::Node>&) const { return saved_.unpack(); }
  void release() { saved_.reset_data(); }
  SavedVariable saved_;
};

template <>
struct Kept<std::optional<at::Tensor>> {
  Kept(const std::optional<at::Tensor>& tensor, bool save) {
    if (save && tensor.has_value() && tensor->defined()) saved_ = SavedVariable(*tensor, /*is_output=*/false);
  }
  std::optional<at::Tensor> get(const c10::intrusive_ptr<torch::autograd::Node>&) const {
    at::Tensor tensor = saved_.unpack();
    return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
  }
  void release() { saved_.reset_data(); }
  SavedVariable saved_;
};

template <class T>
struct Kept<c10::ArrayRef<T>> {
  Kept(c10::ArrayRef<T> values, bool) : values_(values.vec()) {}
  c10::ArrayRef<T> get(const c10::intrusive_ptr<torch::autograd::Node>&) const { return values_; }
  void release() {}
  std::vector<T> values_;
};

template <class T>
struct Kept<c10::OptionalArrayRef<T>> {
  Kept(c10::OptionalArrayRef<T> values, bool) {
    if (values.has_value()) values_ = values->vec();
  }
  c10::OptionalArrayRef<T> get(const c10::intrusive_ptr<torch::autograd::Node>&) const {
    return values_.has_value() ? c10::OptionalArrayRef<T>(*values_) : c10::OptionalArrayRef<T>();
  }
  void release() {}
  std::optional<std::vector<T>> values_;
};

template <>
struct Kept<std::string_view> {
  Kept(std::string_view value, bool) : value_(value) {}
  std::string_view get(const c10::intrusive_ptr<torch::autograd::Node>&) const { return value_; }
  void release() {}
  std::string value_;
};

template <>
struct Kept<std::optional<std::string_view>> {
  Kept(std::optional<std::string_view> value, bool) : value_(value) {}
  std::optional<std::string_view> get(const c10::intrusive_ptr<torch::autograd::Node>&) const { return value_; }
  void release() {}
  std::optional<std::string> value_;
};

// ---- Results as a flat list, for kernels that return a tensor or a tuple of tensors and integers.

template <class T>
void append_result(std::vector<at::Tensor>& list, const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    list.push_back(value);
  } else {
    list.emplace_back();  // an integer keeps its position
  }
}
template <class... T>
std::vector<at::Tensor> result_list(const std::tuple<T...>& results) {
  std::vector<at::Tensor> list;
  std::apply([&](const T&... value) { (append_result(list, value), ...); }, results);
  return list;
}
inline std::vector<at::Tensor> result_list(const at::Tensor& result) { return {result}; }

template <class R, size_t kIndex>
auto element(const R& results) {
  if constexpr (std::is_same_v<R, at::Tensor>) {
    static_assert(kIndex == 0);
    return results;
  } else {
    return std::get<kIndex>(results);
  }
}

// ---- The Node

template <auto kKernel>
struct SignatureOf;
template <class R, class... A, R (*kKernel)(A...)>
struct SignatureOf<kKernel> {
  using Result = R;
  using KeptArguments = std::tuple<Kept<std::decay_t<A>>...>;
  static constexpr size_t kArguments = sizeof...(A);
};

// What a derivative function sees.
template <auto kKernel>
class Context {
  using Signature = SignatureOf<kKernel>;

 public:
  using Result = typename Signature::Result;

  // Argument I as the kernel got it; a tensor that was not saved is undefined (or absent).
  template <size_t I>
  auto input() const {
    return std::get<I>(*arguments).get(self);
  }
  // Result I: a saved tensor, or an integer.
  template <size_t I>
  auto output() const {
    using T = decltype(element<Result, I>(std::declval<Result>()));
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return (*outputs)[I].unpack(self);
    } else {
      return std::get<I>(*integers);
    }
  }
  // Gradient of the i-th differentiable result, undefined when nothing used it.
  const at::Tensor& grad(size_t i) const { return (*grads)[i]; }
  // Whether the gradient of the i-th tensor parameter is wanted.
  bool needs(size_t i) const { return self->task_should_compute_output(i); }

  c10::intrusive_ptr<torch::autograd::Node> self;
  const typename Signature::KeptArguments* arguments;
  const std::vector<SavedVariable>* outputs;
  const Result* integers;  // with its tensors taken out
  const variable_list* grads;
};

template <auto kKernel, auto kDerivative>
class KernelNode final : public torch::autograd::Node {
  using Signature = SignatureOf<kKernel>;
  using Result = typename Signature::Result;

 public:
  KernelNode(std::string name, typename Signature::KeptArguments&& arguments)
      : name_(std::move(name)), arguments_(std::move(arguments)) {}

  variable_list apply(variable_list&& grads) override {
    bool any = false;
    for (const at::Tensor& grad : grads) any |= grad.defined();
    if (!any) return variable_list(num_outputs());
    TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
    Context<kKernel> context;
    context.self = c10::intrusive_ptr<torch::autograd::Node>::reclaim_copy(this);
    context.arguments = &arguments_;
    context.outputs = &outputs_;
    context.integers = &integers_;
    context.grads = &grads;
    return kDerivative(context);
  }

  std::string name() const override { return name_; }

  void release_variables() override {
    std::apply([](auto&... kept) { (kept.release(), ...); }, arguments_);
    for (SavedVariable& output : outputs_) output.reset_data();
    released_ = true;
  }

  template <class SavedOutputs>
  void save_results(const Result& results) {
    const std::vector<at::Tensor> list = result_list(results);
    outputs_.resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      if (SavedOutputs::contains(i)) outputs_[i] = SavedVariable(list[i], /*is_output=*/true);
    }
    integers_ = without_tensors(results);
  }

 private:
  static Result without_tensors(const Result& results) {
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return Result();
    } else {
      return std::apply(
          [](const auto&... value) {
            return Result([&] {
              if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
                return at::Tensor();
              } else {
                return value;
              }
            }()...);
          },
          results);
    }
  }

  std::string name_;
  typename Signature::KeptArguments arguments_;
  std::vector<SavedVariable> outputs_;
  Result integers_;
  bool released_ = false;
};

// ---- The kernel on AutogradPrivateUse1

inline void append_tensor(variable_list& list, const at::Tensor& tensor) { list.push_back(tensor); }
inline void append_tensor(variable_list& list, const std::optional<at::Tensor>& tensor) {
  list.push_back(tensor.has_value() ? *tensor : at::Tensor());
}
template <class T>
void append_tensor(variable_list&, const T&) {}

inline bool requires_grad(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
inline bool requires_grad(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && requires_grad(*tensor);
}
template <class T>
bool requires_grad(const T&) {
  return false;
}

// Op is the operator to call below autograd; Outputs says which results have gradients.
template <class Op, auto kKernel, auto kDerivative, class SavedInputs, class SavedOutputs, class Outputs>
struct Differentiable;

template <class Op, class R, class... A, R (*kKernel)(A...), auto kDerivative, class SavedInputs, class SavedOutputs,
          class Outputs>
struct Differentiable<Op, kKernel, kDerivative, SavedInputs, SavedOutputs, Outputs> {
  static R call(A... args) {
    const bool tracked = at::GradMode::is_enabled() && (requires_grad(args) || ...);
    if (!tracked) {
      at::AutoDispatchBelowADInplaceOrView below;
      return Op::call(static_cast<A&&>(args)...);
    }
    auto node = make_node(std::index_sequence_for<A...>(), args...);
    R results = [&] {
      at::AutoDispatchBelowADInplaceOrView below;
      return Op::call(static_cast<A&&>(args)...);
    }();
    const std::vector<at::Tensor> list = result_list(results);
    for (size_t i = 0; i < list.size(); ++i) {
      if (Outputs::contains(i)) torch::autograd::set_history(list[i], node);
    }
    node->template save_results<SavedOutputs>(results);
    return results;
  }

 private:
  using Node = KernelNode<kKernel, kDerivative>;

  template <size_t... kIndex>
  static c10::intrusive_ptr<Node> make_node(std::index_sequence<kIndex...>, const std::decay_t<A>&... args) {
    variable_list tensors;
    (append_tensor(tensors, args), ...);
    auto node = c10::make_intrusive<Node>(
        Op::backward_name(),
        std::tuple<Kept<std::decay_t<A>>...>(Kept<std::decay_t<A>>(args, SavedInputs::contains(kIndex))...));
    node->set_next_edges(torch::autograd::collect_next_edges(tensors));
    return node;
  }
};

// ---- Autocast of one argument

template <bool kLower, class T>
T cast_for_autocast(at::ScalarType, const T& value) {
  return value;
}
// Vectors (biases, scales, sinks) stay in float32, as kernels take them in any type.
template <bool kLower>
at::Tensor cast_for_autocast(at::ScalarType type, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kNPU || !tensor.is_floating_point()) return tensor;
  if (tensor.scalar_type() == at::kDouble || (kLower && tensor.dim() < 2)) return tensor;
  return kLower ? at::autocast::cached_cast(type, tensor, kNPU)
                : (tensor.scalar_type() == type ? tensor : tensor.to(type));
}
template <bool kLower>
std::optional<at::Tensor> cast_for_autocast(at::ScalarType type, const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional(cast_for_autocast<kLower>(type, *tensor)) : std::nullopt;
}

}  // namespace cann::aten::npu
