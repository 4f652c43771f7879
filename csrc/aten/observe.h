#pragma once
// How operators report to the simulator's clock: what they read, what they wrote, from arguments in C++ form (direct
// kernels) or on the dispatcher's stack (boxed ones). Only called while someone watches.

#include <ATen/ATen.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "runtime/simulator.h"

namespace cann::aten {

// Bit i is set when the operator's schema says that it writes argument i.
uint64_t written_arguments(const char* name, const char* overload_name);

// What the simulator needs to know of an operator; made at its first use.
struct Observed {
  Observed(const char* name, const char* overload_name);
  explicit Observed(const c10::OperatorHandle& op);
  uintptr_t id;  // of the operator's overload, unique in the process
  bool pointwise;
  bool blocking;  // the host waits for values: results whose shape, or which themselves, depend on them
  uint64_t written;
  uint64_t overwritten;  // of these, the arguments whose old values are not read
  int causal;            // position of an `is_causal` argument, -1 if there is none
  int density;  // position of an integer `density_ppm`: share of query-key pairs that attention computes, in 1e-6
  int world;    // position of an integer `world_size`
  int heads;    // positions of npu attention's `head_num`, `input_layout` and `sparse_mode`
  int layout;
  int sparse;
};

// Numbers and strings on which the cost depends.
void observe_number(simulator::Observation& seen, const Observed& facts, size_t i, int64_t value);
void observe_text(simulator::Observation& seen, const Observed& facts, size_t i, std::string_view value);

void observe_argument(simulator::Observation& seen, const Observed& facts, size_t i, const auto& argument) {
  using T = std::decay_t<decltype(argument)>;
  const auto add = [&](const at::Tensor& tensor) {
    facts.overwritten >> i & 1 ? seen.overwrite(tensor)
    : facts.written >> i & 1   ? seen.update(tensor)
                               : seen.read(tensor);
  };
  if constexpr (std::is_same_v<T, at::Tensor>) {
    add(argument);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    if (argument.has_value()) add(*argument);
  } else if constexpr (std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef>) {
    for (const at::Tensor& tensor : argument) add(tensor);
  }
}

void observe_result(simulator::Observation& seen, const auto& value) {
  using T = std::decay_t<decltype(value)>;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    seen.result(value);
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    for (const at::Tensor& tensor : value) seen.result(tensor);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... each) { (observe_result(seen, each), ...); }, value);
  }
}

// Runs a kernel and tells the simulator what it read and wrote.
template <class Op, class R, class... A>
R observed(R (*kernel)(A...), A... args) {
  static const Observed facts(Op::name, Op::overload_name);
  simulator::Observation seen(Op::name, facts.id, facts.pointwise, facts.blocking);
  size_t i = 0;
  const auto observe = [&](const auto& argument) {
    observe_argument(seen, facts, i, argument);
    using T = std::decay_t<decltype(argument)>;
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t>) {
      observe_number(seen, facts, i, static_cast<int64_t>(argument));
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      observe_text(seen, facts, i, argument);
    }
    ++i;
  };
  (observe(args), ...);
  if constexpr (std::is_void_v<R>) {
    kernel(static_cast<A&&>(args)...);
    seen.finish();
  } else {
    R result = kernel(static_cast<A&&>(args)...);
    observe_result(seen, result);
    seen.finish();
    return static_cast<R&&>(result);
  }
}

// The same for arguments and results on the dispatcher's stack.
void observe_arguments(simulator::Observation& seen, const Observed& facts, std::span<const c10::IValue> arguments);
void observe_result(simulator::Observation& seen, const c10::IValue& value);

// A copy that happened, within a card, between two, or between host and card.
void observe_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking);

}  // namespace cann::aten
