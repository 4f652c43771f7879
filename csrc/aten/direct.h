#pragma once
// Direct kernels: an unboxed npu kernel for any ATen operator, made from its name alone.
//
//   register_direct<at::_ops::add_Tensor, at::_ops::mm>(library);
//
// Each kernel aliases its npu arguments to CPU tensors, redispatches to the operator's CPU kernel with allocations
// redirected to the card's HBM, and hands npu tensors back. No copies, no boxing: about 40-80 ns per tensor.

#include <ATen/ATen.h>
#include <ATen/core/IListRef.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/observe.h"
#include "aten/write_guard.h"
#include "runtime/allocation_redirect.h"
#include "runtime/generator.h"
#include "runtime/host_alias.h"

namespace cann::aten {

// ---- Arguments: how one parameter of type T enters the CPU kernel. get() is called after all have been aliased.

template <class T>
struct Arg {
  Arg(AliasScope&, T value) : value_(static_cast<T&&>(value)) {}
  T get() { return static_cast<T&&>(value_); }
  T value_;
};

template <>
struct Arg<const at::Tensor&> {
  Arg(AliasScope& scope, const at::Tensor& tensor) : alias_(scope.borrow(tensor)) {}
  const at::Tensor& get() { return *alias_; }
  c10::MaybeOwned<at::Tensor> alias_;
};

template <>
struct Arg<at::Tensor&> {
  Arg(AliasScope& scope, at::Tensor& tensor) : alias_(scope.alias_written(tensor)) { check_host_can_write(alias_); }
  at::Tensor& get() { return alias_; }
  at::Tensor alias_;
};

template <>
struct Arg<const std::optional<at::Tensor>&> {
  Arg(AliasScope& scope, const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) alias_ = scope.alias(*tensor);
  }
  const std::optional<at::Tensor>& get() { return alias_; }
  std::optional<at::Tensor> alias_;
};

// Aliases in a row, as lists need them, without counting a reference each.
class BorrowedList {
 public:
  // Delegates, so that the destructor gives back what was borrowed before a tensor that is refused.
  BorrowedList(AliasScope& scope, const auto& tensors) : BorrowedList() {
    aliases_.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      aliases_.push_back(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(*scope.borrow(tensor)));
    }
  }
  ~BorrowedList() {
    for (at::Tensor& alias : aliases_) c10::MaybeOwnedTraits<at::Tensor>::destroyBorrow(alias);
  }
  BorrowedList(const BorrowedList&) = delete;
  BorrowedList& operator=(const BorrowedList&) = delete;
  BorrowedList(BorrowedList&&) = default;  // leaves an empty vector behind

  at::TensorList get() const { return aliases_; }

 private:
  BorrowedList() = default;

  std::vector<at::Tensor> aliases_;
};

template <>
struct Arg<at::TensorList> {
  Arg(AliasScope& scope, at::TensorList tensors) : aliases_(scope, tensors) {}
  at::TensorList get() { return aliases_.get(); }
  BorrowedList aliases_;
};

// A list in an operator without results: any of them may be the one that is written.
struct WrittenList {
  WrittenList(AliasScope& scope, at::TensorList tensors) {
    aliases_.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) aliases_.push_back(scope.alias_written_member(tensor));
  }
  at::TensorList get() { return aliases_; }
  std::vector<at::Tensor> aliases_;
};

template <class T, bool kNoResult>
using ArgOf = std::conditional_t<kNoResult && std::is_same_v<T, at::TensorList>, WrittenList, Arg<T>>;

template <>
struct Arg<const at::ITensorListRef&> {
  Arg(AliasScope& scope, const at::ITensorListRef& tensors) : aliases_(scope, tensors), list_(aliases_.get()) {}
  const at::ITensorListRef& get() { return list_; }
  BorrowedList aliases_;
  at::ITensorListRef list_;
};

// Index tensors of index, index_put and their kin, which may stay on the CPU.
template <>
struct Arg<const c10::List<std::optional<at::Tensor>>&> {
  Arg(AliasScope& scope, const c10::List<std::optional<at::Tensor>>& tensors) {
    aliases_.reserve(tensors.size());
    for (const std::optional<at::Tensor>& tensor : tensors) {
      const bool present = tensor.has_value() && tensor->defined();
      aliases_.push_back(present && tensor->device().type() == kNPU ? scope.alias_temporary(*tensor) : tensor);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() { return aliases_; }
  c10::List<std::optional<at::Tensor>> aliases_;
};

template <>
struct Arg<std::optional<at::Device>> {
  Arg(AliasScope& scope, std::optional<at::Device> device) : device_(device) {
    if (device.has_value() && device->type() == kNPU) {
      scope.set_device(*device);
      device_ = at::Device(at::kCPU);
    }
  }
  std::optional<at::Device> get() { return device_; }
  std::optional<at::Device> device_;
};

// Converted last: the card is known only when every tensor has been seen.
template <>
struct Arg<std::optional<at::Generator>> {
  Arg(AliasScope& scope, std::optional<at::Generator> generator) : scope_(scope), generator_(std::move(generator)) {}
  std::optional<at::Generator> get() { return host_generator(generator_, scope_.device()); }
  AliasScope& scope_;
  std::optional<at::Generator> generator_;
};

// ---- Results

template <class R>
struct Result {
  static R wrap(AliasScope&, R value) { return value; }
};

template <>
struct Result<at::Tensor> {
  static at::Tensor wrap(AliasScope& scope, at::Tensor&& value) { return scope.wrap(std::move(value)); }
};

template <>
struct Result<at::Tensor&> {
  static at::Tensor& wrap(AliasScope& scope, at::Tensor& alias) {
    return const_cast<at::Tensor&>(*scope.original_of(alias));  // the caller passed it as at::Tensor&
  }
};

template <>
struct Result<const at::Tensor&> {
  static const at::Tensor& wrap(AliasScope& scope, const at::Tensor& alias) { return *scope.original_of(alias); }
};

template <>
struct Result<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> wrap(AliasScope& scope, std::vector<at::Tensor>&& values) {
    for (at::Tensor& value : values) value = scope.wrap(std::move(value));
    return std::move(values);
  }
};

template <class... T>
struct Result<std::tuple<T...>> {
  static std::tuple<T...> wrap(AliasScope& scope, std::tuple<T...>&& values) {
    return std::apply(
        [&](auto&... value) { return std::tuple<T...>(Result<T>::wrap(scope, static_cast<T&&>(value))...); }, values);
  }
};

// ---- Kernels

// Operators whose tensors may be on different devices.
template <class Op>
inline constexpr bool kCopiesBetweenDevices = std::is_same_v<Op, at::_ops::_foreach_copy_>;

inline void bump_versions_if(bool written, const auto& argument) {
  if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, at::TensorList>) {
    if (written) bump_versions(argument);
  }
}

// For an operator without a fast path.
struct NoFastPath {};

// `Fast` is what is tried first: a class of aten/fast_pointwise.h.
template <class Op, class Schema, class Fast = NoFastPath>
struct DirectKernel;

template <class Op, class Fast, class R, class... A>
struct DirectKernel<Op, R(A...), Fast> {
  // Kernels that may resize or replace the storage of an argument.
  static constexpr bool kWrites =
      std::is_void_v<R> || std::is_reference_v<R> || (std::is_same_v<A, at::Tensor&> || ...);

  static R call(A... args) {
    if (simulator::watching()) return observed<Op, R, A...>(run, static_cast<A&&>(args)...);
    return run(static_cast<A&&>(args)...);
  }

  static R run(A... args) {
    if constexpr (std::is_same_v<Fast, NoFastPath>) {
      return call_on_aliases(static_cast<A&&>(args)...);
    } else if constexpr (std::is_same_v<R, at::Tensor>) {
      at::Tensor result;
      if (Fast::run(result, args...)) return result;
      return call_on_aliases(static_cast<A&&>(args)...);
    } else {
      if (Fast::run(args...)) return std::get<0>(std::tie(args...));
      return call_on_aliases(static_cast<A&&>(args)...);
    }
  }

 private:
  static R call_on_aliases(A... args) {
    AliasScope scope;
    std::tuple<ArgOf<A, std::is_void_v<R>>...> aliases{ArgOf<A, std::is_void_v<R>>(scope, static_cast<A&&>(args))...};
    if constexpr (!kCopiesBetweenDevices<Op>) scope.check_devices(Op::name);
    AllocationRedirect redirect(scope.device());
    return std::apply(
        [&](auto&... arg) -> R {
          constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
          if constexpr (std::is_void_v<R>) {
            Op::redispatch(keys, arg.get()...);
            scope.write_back();
            if constexpr ((std::is_same_v<A, at::TensorList> || ...)) {
              static const uint64_t written = written_arguments(Op::name, Op::overload_name);
              size_t i = 0;
              (bump_versions_if(written >> i++ & 1, args), ...);
            }
          } else if constexpr (kWrites) {
            decltype(auto) result = Op::redispatch(keys, arg.get()...);
            scope.write_back();
            return Result<R>::wrap(scope, static_cast<R&&>(result));
          } else {
            return Result<R>::wrap(scope, Op::redispatch(keys, arg.get()...));
          }
        },
        aliases);
  }
};

// "name.overload", as the dispatcher knows the operator.
template <class Op>
std::string operator_name() {
  std::string name(Op::name);
  if (*Op::overload_name != '\0') name.append(".").append(Op::overload_name);
  return name;
}

template <class Op, class Fast>
void register_one_direct(torch::Library& library) {
  library.impl(operator_name<Op>().c_str(), TORCH_FN((DirectKernel<Op, typename Op::schema, Fast>::call)));
}

// Registers a direct kernel for each operator. `library` implements "aten" for PrivateUse1.
template <class... Ops>
void register_direct(torch::Library& library) {
  (register_one_direct<Ops, NoFastPath>(library), ...);
}

// The same for operators that try a fast path first.
template <class Fast, class... Ops>
void register_fast(torch::Library& library) {
  (register_one_direct<Ops, Fast>(library), ...);
}

}  // namespace cann::aten
