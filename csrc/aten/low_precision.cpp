// Matrix products and convolutions of float16 and bfloat16 tensors.
//
// A CPU without 16-bit arithmetic makes ATen emulate it: a bfloat16 linear layer then takes 5.8 times, a convolution 28
// times as long as the same in float32. These kernels keep 16-bit storage and compute in float32 there, which is
// also closer to the hardware, whose cube unit accumulates in float32. Where the CPU has matrix units, ATen's kernel
// runs; where it has vector instructions only, whichever was measured faster for the shape.
// TORCH_CANN_LOW_PRECISION=native|float32 overrides the choice made from the CPU's features.

#include <ATen/TracerMode.h>
#include <ATen/native/Resize.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "aten/direct.h"
#include "aten/kernel_choice.h"
#include "aten/register.h"
#include "sim/env.h"

namespace cann::aten {
namespace {

// How well a CPU multiplies a 16-bit type.
enum class Units {
  kNone,    // emulated by ATen
  kVector,  // instructions that multiply pairs: no faster than float32 ones, and ATen repacks both factors for them
  kFull,    // matrix units (AMX), or for float16 vector arithmetic that needs no repacking
};

struct Native {
  Units bfloat16;
  Units float16;
};

Native native_units() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // GCC 12 has no name for AMX in __builtin_cpu_supports: CPUID leaf 7, EDX bit 22 is AMX-BF16.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1) != 0;
  return {.bfloat16 = amx                                         ? Units::kFull
                      : __builtin_cpu_supports("avx512bf16") != 0 ? Units::kVector
                                                                  : Units::kNone,
          .float16 = __builtin_cpu_supports("avx512fp16") != 0 ? Units::kFull : Units::kNone};
#else
  return {.bfloat16 = Units::kNone, .float16 = Units::kNone};
#endif
}

Units units_for(at::ScalarType type) {
  using enum sim::LowPrecision;
  static const Native native = [] {
    switch (sim::Env::get().low_precision) {
      case kNative:
        return Native{Units::kFull, Units::kFull};
      case kFloat32:
        return Native{Units::kNone, Units::kNone};
      case kAuto:
        return native_units();
    }
    return native_units();
  }();
  return type == at::kBFloat16 ? native.bfloat16 : type == at::kHalf ? native.float16 : Units::kFull;
}

// Whether vector units lose to float32 arithmetic with its conversions: [m, k] by [k, n], medians of interleaved runs
// on AVX512-BF16 without AMX. Native takes 1.4 to 2.1 times as long, unless converting the factors costs more than it
// saves, which is when each of their elements takes part in few products (8x4096x4096: 0.15 times).
bool float32_beats_vector_units(int64_t m, int64_t k, int64_t n) {
  constexpr double kCallBound = 1 << 19;
  constexpr double kProductsPerElement = 48;
  const double products = static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  const double elements = static_cast<double>(m * k + k * n + m * n);
  return products <= kCallBound || products >= kProductsPerElement * elements;
}

// Position of the first factor of a matrix product among the arguments, -1 for other operators.
template <class Op>
inline constexpr int kFirstFactor = -1;
template <>
inline constexpr int kFirstFactor<at::_ops::mm> = 0;
template <>
inline constexpr int kFirstFactor<at::_ops::bmm> = 0;
template <>
inline constexpr int kFirstFactor<at::_ops::addmm> = 1;
template <>
inline constexpr int kFirstFactor<at::_ops::baddbmm> = 1;

template <class Op>
bool computes_in_float32(const at::Tensor& first, const auto&... rest) {
  const Units units = units_for(first.scalar_type());
  if (C10_LIKELY(units == Units::kFull)) return false;
  if (units == Units::kNone) return true;
  if constexpr (kFirstFactor<Op> >= 0) {
    const auto arguments = std::forward_as_tuple(first, rest...);
    const at::Tensor &a = std::get<kFirstFactor<Op>>(arguments), &b = std::get<kFirstFactor<Op> + 1>(arguments);
    return a.dim() >= 2 && a.dim() == b.dim() && float32_beats_vector_units(a.size(-2), a.size(-1), b.size(-1));
  }
  return false;
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

template <class Op>
at::Tensor narrow(at::Tensor t, at::ScalarType type) {
  return t.defined() ? t.to(type) : t;
}
template <class Op, class... T>
std::tuple<T...> narrow(std::tuple<T...> results, at::ScalarType type) {
  return std::apply([&](T&... t) { return std::tuple<T...>(narrow<Op>(std::move(t), type)...); }, results);
}

// ---- The kernel of a functional operator: the direct kernel, or the same on float32 copies.

const at::Tensor& first_tensor(const at::Tensor& first, const auto&...) { return first; }

template <class Op, class Schema>
struct LowPrecisionKernel;

template <class Op, class R, class... A>
struct LowPrecisionKernel<Op, R(A...)> {
  static R call(A... args) {
    if (C10_LIKELY(!computes_in_float32<Op>(args...)))
      return DirectKernel<Op, R(A...)>::call(static_cast<A&&>(args)...);
    if (simulator::watching()) return observed<Op, R, A...>(run, static_cast<A&&>(args)...);
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
          return Result<R>::wrap(scope, narrow<Op>(std::move(result), type));
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
    if (C10_LIKELY(!computes_in_float32<Op>(args...) || out.scalar_type() != first_tensor(args...).scalar_type())) {
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

// jit.trace records not this operator but the `_convolution` that its kernel calls. Called by ATen's kernel it would be
// recorded on the CPU aliases, which the tracer does not know: a graph of constants that ignores its input.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  using Op = at::_ops::convolution;
  // In terms of the tensors that were given; ATen's check would name their CPU aliases.
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.toString(), ") and weight type (",
              weight.toString(), ") should be the same");
  if (C10_UNLIKELY(at::tracer::impl::is_dispatch_enabled())) {
    const auto& context = at::globalContext();
    return at::_convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                   std::move(groups), context.benchmarkCuDNN(), context.deterministicCuDNN(),
                                   context.userEnabledCuDNN(), context.allowTF32CuDNN(at::Float32Op::CONV));
  }
  return LowPrecisionKernel<Op, Op::schema>::call(input, weight, bias, stride, padding, dilation, transposed,
                                                  output_padding, std::move(groups));
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
  aten.impl("convolution", TORCH_FN(convolution));
  register_functional<ops::_convolution>(aten);
  register_functional<ops::convolution_backward>(aten);
}

}  // namespace cann::aten
