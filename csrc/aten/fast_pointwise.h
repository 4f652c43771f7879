#pragma once
// Fast paths of pointwise operators: what a direct kernel tries before it makes aliases.
//
// They take tensors of the plainest kind: dense, contiguous, of one shape and one dtype of float32, bfloat16 and
// float16, on one card; and numbers. Small ones are computed at once on the calling thread, which takes 0.5 to 0.7 of
// the time of aliases and an iterator over operands. Results of float32 that no cache can hold are written past the
// caches. All results equal the CPU kernels' to the bit: only operations are here whose rounding is known.
//
// Every function returns false, having done nothing, when it does not apply; the operator then takes its usual way,
// which also raises what there is to raise.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

#include "kernels/pointwise.h"

namespace cann::aten::fast {

using kernels::Pointwise;

// result = op(a; s), op(a, b; s).
bool unary(at::Tensor& result, Pointwise op, const at::Tensor& a, double s = 0);
bool unary_inplace(Pointwise op, at::Tensor& a, double s = 0);
bool binary(at::Tensor& result, Pointwise op, const at::Tensor& a, const at::Tensor& b, double s);
bool binary_inplace(Pointwise op, at::Tensor& a, const at::Tensor& b, double s);

// The number that `t` stands for, if PyTorch made it of a Python number.
std::optional<double> number(const at::Tensor& t);
std::optional<double> number(const at::Scalar& s);

// Whether no float32 holds `s`, of which the usual way complains.
bool overflows(double s);

// `s` as the dtype of `like` has it.
double rounded(double s, const at::Tensor& like);

// min(max(a, low), high) of float32; a bound may be missing.
bool clamp(at::Tensor& result, const at::Tensor& a, const std::optional<at::Scalar>& low,
           const std::optional<at::Scalar>& high);

// self = value everywhere; self = source, converted between the three dtypes; a copy of self.
bool fill(at::Tensor& self, const at::Scalar& value);
bool copy(at::Tensor& self, const at::Tensor& source);
bool clone(at::Tensor& result, const at::Tensor& self);

// ---- The same as what register_direct() takes beside an operator: run() has the operator's arguments, after the
// result if the operator makes one.

template <Pointwise kOp>
struct Unary {
  static bool run(at::Tensor& result, const at::Tensor& a) { return unary(result, kOp, a); }
  static bool run(at::Tensor& a) { return unary_inplace(kOp, a); }
};

// kOp of two tensors, kScalarOp of a tensor and a number.
template <Pointwise kOp, Pointwise kScalarOp>
struct Binary {
  static bool run(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
    if (const auto s = number(b)) return unary(result, kScalarOp, a, *s);
    return binary(result, kOp, a, b, 0);
  }
  static bool run(at::Tensor& a, const at::Tensor& b) {
    if (const auto s = number(b)) return unary_inplace(kScalarOp, a, *s);
    return binary_inplace(kOp, a, b, 0);
  }
  static bool run(at::Tensor& result, const at::Tensor& a, const at::Scalar& b) {
    const auto s = number(b);
    return s.has_value() && unary(result, kScalarOp, a, *s);
  }
  // mul_(number), which the CPU computes as number * a, the number in a's dtype; elsewhere it keeps its precision.
  static bool run(at::Tensor& a, const at::Scalar& b) {
    const auto s = number(b);
    return s.has_value() && unary_inplace(kScalarOp, a, rounded(*s, a));
  }
};

// a + kSign * alpha * b. In 16 bit the CPU's kernels round a number in place of b to the dtype first, and alpha * b in
// the last elements only, which is left to them.
template <int kSign>
struct Add {
  static bool run(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
    const auto factor = number(alpha);
    if (!factor.has_value()) return false;
    if (const auto s = number(b)) {
      return *factor == 1 && unary(result, Pointwise::kAddScalar, a, kSign * rounded(*s, a));
    }
    return rounds_once(*factor, a) && binary(result, Pointwise::kAdd, a, b, kSign * *factor);
  }
  static bool run(at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha) {
    const auto factor = number(alpha);
    if (!factor.has_value()) return false;
    if (const auto s = number(b)) {
      return *factor == 1 && unary_inplace(Pointwise::kAddScalar, a, kSign * rounded(*s, a));
    }
    return rounds_once(*factor, a) && binary_inplace(Pointwise::kAdd, a, b, kSign * *factor);
  }
  // Not 0: the CPU negates it as an integer, which has no -0.
  static bool rounds_once(double factor, const at::Tensor& a) {
    return factor != 0 && !overflows(factor) && (a.scalar_type() == at::kFloat || factor == 1 || factor == -1);
  }
};

struct Square {
  static bool run(at::Tensor& result, const at::Tensor& a, const at::Scalar& exponent) {
    const auto s = number(exponent);
    return s == 2.0 && binary(result, Pointwise::kMul, a, a, 0);
  }
};

struct Relu {
  static bool run(at::Tensor& result, const at::Tensor& a) { return unary(result, Pointwise::kClampMin, a); }
  static bool run(at::Tensor& a) { return unary_inplace(Pointwise::kClampMin, a); }
};

struct ReluBackward {
  static bool run(at::Tensor& result, const at::Tensor& grad, const at::Tensor& self, const at::Scalar& threshold) {
    return number(threshold) == 0.0 && binary(result, Pointwise::kReluBackward, grad, self, 0);
  }
};

struct Clamp {
  using Bound = std::optional<at::Scalar>;
  static bool run(at::Tensor& result, const at::Tensor& a, const Bound& min, const Bound& max) {
    return clamp(result, a, min, max);
  }
};

struct Fill {
  static bool run(at::Tensor& self, const at::Scalar& value) { return fill(self, value); }
  static bool run(at::Tensor& self) { return fill(self, 0); }
};

struct Clone {
  static bool run(at::Tensor& result, const at::Tensor& self, std::optional<at::MemoryFormat> format) {
    using enum at::MemoryFormat;
    return (!format.has_value() || *format == Preserve || *format == Contiguous) && clone(result, self);
  }
};

}  // namespace cann::aten::fast
