#pragma once
// Operators whose kernels assert that indices lie within the tensor they index.
//
// On hardware such an assert ends the kernel, and the host hears of it as an error code of the runtime at the next
// synchronisation, or at once with ASCEND_LAUNCH_BLOCKING=1. Here it is always at once, in the same words, with the
// operator's name and what the CPU's kernel has to say.

#include <c10/util/Exception.h>

#include "aten/direct.h"

namespace cann::aten {

// Raises RuntimeError for an index out of range; any other error goes on as it is. Called in a catch block.
[[noreturn]] void rethrow_as_device_assert(const char* op, const c10::Error& error);

// The CPU's gather does not look at indices that are expanded along all other dimensions. Raises RuntimeError.
void check_expanded_index(const at::Tensor& self, int64_t dim, const at::Tensor& index);

template <class Op, class Schema>
struct AssertingKernel;

template <class Op, class R, class... A>
struct AssertingKernel<Op, R(A...)> {
  static R call(A... args) {
    try {
      if constexpr (std::is_same_v<Op, at::_ops::gather>) {
        const auto all = std::tie(args...);
        check_expanded_index(std::get<0>(all), std::get<1>(all), std::get<2>(all));
      }
      return DirectKernel<Op, R(A...)>::call(static_cast<A&&>(args)...);
    } catch (const c10::Error& error) {
      rethrow_as_device_assert(Op::name, error);
    }
  }
};

// register_direct() for operators whose kernels assert.
template <class... Ops>
void register_asserting(torch::Library& library) {
  (library.impl(operator_name<Ops>().c_str(), TORCH_FN((AssertingKernel<Ops, typename Ops::schema>::call))), ...);
}

}  // namespace cann::aten
