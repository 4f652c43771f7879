#pragma once
// Registers hand-written kernels under the names of ATen's operators, so that they report to the simulator's clock as
// direct kernels do. A kernel leaves a call that it cannot serve to general<Op>().

#include "aten/direct.h"
#include "aten/kernel_choice.h"

namespace cann::aten {

template <class Op, auto kKernel, class Schema = typename Op::schema>
struct NativeKernel;

template <class Op, auto kKernel, class R, class... A>
struct NativeKernel<Op, kKernel, R(A...)> {
  static R call(A... args) {
    note_kernel_choice(KernelChoice::kOwn);
    if (simulator::watching()) return observed<Op, R, A...>(kKernel, static_cast<A&&>(args)...);
    return kKernel(static_cast<A&&>(args)...);
  }
};

// `kKernel` is a function of the operator's schema; `aten` implements "aten" for PrivateUse1.
template <class Op, auto kKernel>
void register_native(torch::Library& aten) {
  aten.impl(operator_name<Op>().c_str(), TORCH_FN((NativeKernel<Op, kKernel>::call)));
}

// The operator's general kernel: ATen's on aliases of the arguments.
template <class Op, class... A>
decltype(auto) general(A&&... args) {
  note_kernel_choice(KernelChoice::kAten);
  return DirectKernel<Op, typename Op::schema>::run(std::forward<A>(args)...);
}

}  // namespace cann::aten
