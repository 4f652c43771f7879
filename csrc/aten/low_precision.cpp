// Matrix products and convolutions of float16 and bfloat16 tensors.
//
// A CPU without 16-bit arithmetic makes ATen emulate it: a bfloat16 linear layer then takes 5.8 times, a convolution 28
// times as long as the same in float32. These kernels keep 16-bit storage and compute in float32 there, which is
// also closer to the hardware, whose cube unit accumulates in float32. Where the CPU has the units, ATen's kernel runs.
// TORCH_CANN_LOW_PRECISION=native|float32 overrides the choice made from the CPU's features.

#include <ATen/native/Resize.h>

#include "aten/direct.h"
#include "aten/register.h"
#include "sim/env.h"

namespace cann::aten {
namespace {

struct Native {
  bool bfloat16;
  bool float16;
};

// Which 16-bit types the CPU multiplies in hardware.
Native native_units() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {.bfloat16 = static_cast<bool>(__builtin_cpu_supports("avx512bf16")),
          .float16 = static_cast<bool>(__builtin_cpu_supports("avx512fp16"))};
#else
  return {.bfloat16 = false, .float16 = false};
#endif
}

bool computes_in_float32(const at::Tensor& t) {
  using enum sim::LowPrecision;
  static const Native native = [] {
    switch (sim::Env::get().low_precision) {
      case kNative:
        return Native{true, true};
      case kFloat32:
        return Native{false, false};
      case kAuto:
        return native_units();
    }
    return native_units();
  }();
  const auto type = t.scalar_type();
  return (type == at::kBFloat16 && !native.bfloat16) || (type == at::kHalf && !native.float16);
}

// ---- Conversion of one argument or result; anything that is not a 16-bit tensor passes through.

template <class T>
T widen(T value) {
  return value;
}
at::Tensor widen(const at::Tensor& t) {
  return t.defined() && at::isReducedFloatingType(t.scalar_type()) ? t.to(at::kFloat) : t;
}
std::optional<at::Tensor> widen(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional(widen(*t)) : std::nullopt;
}

at::Tensor narrow(at::Tensor t, at::ScalarType type) { return t.defined() ? t.to(type) : t; }
template <class... T>
std::tuple<T...> narrow(std::tuple<T...> results, at::ScalarType type) {
  return std::apply([&](T&... t) { return std::tuple<T...>(narrow(std::move(t), type)...); }, results);
}

// ---- The kernel of a functional operator: the direct kernel, or the same on float32 copies.

const at::Tensor& first_tensor(const at::Tensor& first, const auto&...) { return first; }

template <class Op, class Schema>
struct LowPrecisionKernel;

template <class Op, class R, class... A>
struct LowPrecisionKernel<Op, R(A...)> {
  static R call(A... args) {
    const at::Tensor& first = first_tensor(args...);
    if (C10_LIKELY(!computes_in_float32(first))) return DirectKernel<Op, R(A...)>::call(static_cast<A&&>(args)...);
    if (simulator::on()) return observed<Op, R, A...>(run, static_cast<A&&>(args)...);
    return run(static_cast<A&&>(args)...);
  }

  static R run(A... args) {
    const at::ScalarType type = first_tensor(args...).scalar_type();
    AliasScope scope;
    std::tuple<Arg<A>...> aliases{Arg<A>(scope, static_cast<A&&>(args))...};
    scope.check_devices(Op::name);
    AllocationRedirect redirect(scope.device());
    return std::apply(
        [&](Arg<A>&... arg) -> R {
          R result = Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), widen(arg.get())...);
          return Result<R>::wrap(scope, narrow(std::move(result), type));
        },
        aliases);
  }
};

// The out= form: computes functionally and copies into `out`, whose size the direct kernel would have set.
template <class Op, class OutOp, class Schema>
struct LowPrecisionOutKernel;

template <class Op, class OutOp, class... A>
struct LowPrecisionOutKernel<Op, OutOp, at::Tensor(A...)> {
  static at::Tensor& call(A... args, at::Tensor& out) {
    if (C10_LIKELY(!computes_in_float32(first_tensor(args...)) ||
                   out.scalar_type() != first_tensor(args...).scalar_type())) {
      return DirectKernel<OutOp, typename OutOp::schema>::call(static_cast<A&&>(args)..., out);
    }
    const at::Tensor result = LowPrecisionKernel<Op, at::Tensor(A...)>::call(static_cast<A&&>(args)...);
    at::native::resize_output(out, result.sizes());
    return out.copy_(result);
  }
};

template <class Op, class OutOp>
void register_pair(torch::Library& aten) {
  aten.impl(Op::name, TORCH_FN((LowPrecisionKernel<Op, typename Op::schema>::call)));
  aten.impl((std::string(OutOp::name) + "." + OutOp::overload_name).c_str(),
            TORCH_FN((LowPrecisionOutKernel<Op, OutOp, typename Op::schema>::call)));
}

template <class Op>
void register_functional(torch::Library& aten) {
  aten.impl(Op::name, TORCH_FN((LowPrecisionKernel<Op, typename Op::schema>::call)));
}

}  // namespace

void register_low_precision(torch::Library& aten) {
  namespace ops = at::_ops;
  register_pair<ops::mm, ops::mm_out>(aten);
  register_pair<ops::addmm, ops::addmm_out>(aten);
  register_pair<ops::bmm, ops::bmm_out>(aten);
  register_pair<ops::baddbmm, ops::baddbmm_out>(aten);
  register_pair<ops::mv, ops::mv_out>(aten);
  register_pair<ops::addmv, ops::addmv_out>(aten);
  register_functional<ops::convolution>(aten);
  register_functional<ops::convolution_backward>(aten);
}

}  // namespace cann::aten
