// Activations and gated linear units. Definitions: torch_npu's operator documentation; 16-bit tensors are computed in
// float32 and rounded once.

#include <algorithm>

#include "aten/fused/plain.h"
#include "aten/kernel_choice.h"
#include "aten/npu/families.h"
#include "aten/npu/floating.h"
#include "aten/npu/raw_memory.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"
#include "kernels/kernels.h"

namespace cann::aten::npu {
namespace {

using Approximate = std::string_view;

// ---- x * sigmoid(1.702 x), the "fast" GELU

constexpr double kFastGelu = 1.702;

Tensor fast_gelu(const Tensor& input) {
  check_floating(input, "input", "npu_fast_gelu");
  const Tensor x = wide(input);
  return x.mul(kFastGelu).sigmoid_().mul_(x).to(input.scalar_type());
}

Tensor fast_gelu_backward(const Tensor& grad, const Tensor& input) {
  const Tensor x = wide(input);
  const Tensor s = x.mul(kFastGelu).sigmoid_();
  // s + 1.702 x s (1 - s)
  return s.neg().add_(1).mul_(x).mul_(kFastGelu).add_(1).mul_(s).mul_(wide(grad)).to(input.scalar_type());
}

// ---- GELU, SiLU, Mish. GELU and SiLU are the device's own operators (aten/fused/activation.cpp).

Tensor gelu(const Tensor& input, Approximate approximate) { return at::gelu(input, approximate); }
Tensor gelu_backward(const Tensor& grad, const Tensor& input, Approximate approximate) {
  return at::gelu_backward(grad, input, approximate);
}

// gelu(first half) * second half, along the last dimension.
Tensor gelu_mul(const Tensor& input, Approximate approximate) {
  const auto [left, right] = halves(input, -1, "npu_gelu_mul");
  return at::gelu(wide(left), approximate).mul_(right).to(input.scalar_type());
}

Tensor silu(const Tensor& input) { return at::silu(input); }
Tensor& silu_(Tensor& input) { return at::silu_(input); }
// x0 is the input of the forward, x1 its output, which the formula does not need.
Tensor silu_backward(const Tensor& grad, const Tensor& x0, const Tensor&) { return at::silu_backward(grad, x0); }

Tensor mish(const Tensor& input) { return at::mish(input); }
Tensor mish_backward(const Tensor& grad, const Tensor& input) { return at::mish_backward(grad, input); }

// ---- SwiGLU: silu(first half) * second half

// A contiguous tensor as rows of two halves of n elements each.
struct Halves {
  kernels::Element element;
  int64_t rows;
  int64_t n;
};

// Nothing for what the kernels do not take: other types, other layouts, Meta tensors.
std::optional<Halves> as_rows_of_halves(const Tensor& input, int64_t dim) {
  const auto element = raw_element({&input});
  if (!element.has_value() || !input.is_contiguous() || input.numel() == 0) return std::nullopt;
  const int64_t rows = c10::multiply_integers(input.sizes().slice(0, static_cast<size_t>(wrap_dim(input, dim))));
  return Halves{*element, rows, input.numel() / rows / 2};
}

// Calls body(row, begin, end) for pieces of rows of n elements, on several threads.
void for_pieces_of_rows(int64_t rows, int64_t n, const auto& body) {
  constexpr int64_t kPiece = 4096;
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  parallel(rows * pieces, std::min(n, kPiece), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i % pieces * kPiece;
      body(i / pieces, begin, std::min(n, begin + kPiece));
    }
  });
}

Tensor swiglu(const Tensor& input, int64_t dim) {
  check_floating(input, "input", "npu_swiglu");
  const auto [gate, value] = halves(input, dim, "npu_swiglu");
  const auto h = as_rows_of_halves(input, dim);
  if (!h.has_value()) return at::silu(wide(gate)).mul_(value).to(input.scalar_type());
  Tensor result = at::empty(gate.sizes(), input.options());
  const int64_t size = input.element_size();
  const char* x = static_cast<const char*>(input.const_data_ptr());
  char* y = static_cast<char*>(result.mutable_data_ptr());
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel = kernels::kernels().swiglu->forward[static_cast<int>(h->element)];
  for_pieces_of_rows(h->rows, h->n, [&](int64_t row, int64_t begin, int64_t end) {
    const char* left = x + (2 * row * h->n + begin) * size;
    kernel(y + (row * h->n + begin) * size, left, left + h->n * size, end - begin);
  });
  return result;
}

Tensor swiglu_backward(const Tensor& grad, const Tensor& input, int64_t dim) {
  const auto [gate, value] = halves(input, dim, "npu_swiglu_backward");
  const auto h = as_rows_of_halves(input, dim);
  if (!h.has_value() || raw_element({&grad, &input}) != h->element || !grad.is_contiguous() ||
      grad.sizes() != gate.sizes()) {
    const Tensor g = wide(grad), a = wide(gate);
    const Tensor d_gate = at::silu_backward(g.mul(value), a);
    return at::cat({d_gate, at::silu(a).mul_(g)}, dim).to(input.scalar_type());
  }
  Tensor result = at::empty_like(input);
  const int64_t size = input.element_size();
  const char *x = static_cast<const char*>(input.const_data_ptr()),
             *dy = static_cast<const char*>(grad.const_data_ptr());
  char* dx = static_cast<char*>(result.mutable_data_ptr());
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel = kernels::kernels().swiglu->backward[static_cast<int>(h->element)];
  for_pieces_of_rows(h->rows, h->n, [&](int64_t row, int64_t begin, int64_t end) {
    const int64_t left = (2 * row * h->n + begin) * size, right = left + h->n * size;
    kernel(dx + left, dx + right, dy + (row * h->n + begin) * size, x + left, x + right, end - begin);
  });
  return result;
}

// The gated unit of gpt-oss: (clamp(linear) + bias) * gate * sigmoid(alpha * gate), gate clamped from above.
Tensor clipped_swiglu(const Tensor& x, const OptionalTensor& group_index, int64_t dim, double alpha, double limit,
                      double bias, bool interleaved) {
  CANN_CHECK_SUPPORTED(!has(group_index), "npu_clipped_swiglu: group_index is not implemented");
  Tensor gate, linear;
  if (interleaved) {
    const int64_t d = wrap_dim(x, dim);
    CANN_CHECK_OP(x.sym_size(d) % 2 == 0, "npu_clipped_swiglu: the size of dimension ", d,
                  " must be even, but x has sizes ", x.sym_sizes());
    gate = x.slice(d, 0, std::nullopt, 2);
    linear = x.slice(d, 1, std::nullopt, 2);
  } else {
    std::tie(gate, linear) = halves(x, dim, "npu_clipped_swiglu");
  }
  const Tensor g = wide(gate).clamp_max(limit);
  const Tensor l = wide(linear).clamp(-limit, limit);
  return g.mul(g.mul(alpha).sigmoid_()).mul_(l.add(bias)).to(x.scalar_type());
}

// ---- GeGLU: one half times gelu(other half); the activated half is the right one unless activate_left.

Approximate gelu_kind(int64_t approximate, const char* op) {
  CANN_CHECK_OP(approximate == 0 || approximate == 1, op, ": approximate must be 0 (erf) or 1 (tanh), but got ",
                approximate);
  return approximate == 1 ? "tanh" : "none";
}

std::tuple<Tensor, Tensor> geglu(const Tensor& input, int64_t dim, int64_t approximate, bool activate_left) {
  const auto [left, right] = halves(input, dim, "npu_geglu");
  const Tensor g = at::gelu(wide(activate_left ? left : right), gelu_kind(approximate, "npu_geglu"));
  const auto type = input.scalar_type();
  return {g.mul(activate_left ? right : left).to(type), g.to(type)};
}

Tensor geglu_grad(const Tensor& grad, const Tensor& input, const Tensor& gelu_out, int64_t dim, int64_t approximate,
                  bool activate_left) {
  const auto [left, right] = halves(input, dim, "npu_geglu_grad");
  const Tensor g = wide(grad);
  const Tensor& linear = activate_left ? right : left;
  const Tensor& gate = activate_left ? left : right;
  const Tensor d_gate = at::gelu_backward(g.mul(linear), wide(gate), gelu_kind(approximate, "npu_geglu_grad"));
  const Tensor d_linear = g.mul(gelu_out);
  return at::cat(activate_left ? TensorList({d_gate, d_linear}).vec() : TensorList({d_linear, d_gate}).vec(), dim)
      .to(input.scalar_type());
}

// ---- Derivatives

variable_list fast_gelu_derivative(Context<fast_gelu>& c) {
  return {Operator<"npu_fast_gelu_backward", fast_gelu_backward>::call(c.grad(0), c.input<0>())};
}
variable_list gelu_derivative(Context<gelu>& c) {
  return {Operator<"npu_gelu_backward", gelu_backward>::call(c.grad(0), c.input<0>(), c.input<1>())};
}
variable_list silu_derivative(Context<silu>& c) {
  return {Operator<"npu_silu_backward", silu_backward>::call(c.grad(0), c.input<0>(), c.output<0>())};
}
variable_list mish_derivative(Context<mish>& c) {
  return {Operator<"npu_mish_backward", mish_backward>::call(c.grad(0), c.input<0>())};
}
variable_list swiglu_derivative(Context<swiglu>& c) {
  return {Operator<"npu_swiglu_backward", swiglu_backward>::call(c.grad(0), c.input<0>(), c.input<1>())};
}
variable_list geglu_derivative(Context<geglu>& c) {
  return {Operator<"npu_geglu_grad", geglu_grad>::call(c.grad(0), c.input<0>(), c.output<1>(), c.input<1>(),
                                                       c.input<2>(), c.input<3>())};
}

}  // namespace

void register_activation(Registry& ops) {
  ops.add<"fast_gelu", fast_gelu>("(Tensor input) -> Tensor").autograd<fast_gelu_derivative, Saves<0>>();
  ops.add<"npu_fast_gelu", fast_gelu>("(Tensor input) -> Tensor").autograd<fast_gelu_derivative, Saves<0>>();
  ops.add<"npu_fast_gelu_backward", fast_gelu_backward>("(Tensor grad, Tensor input) -> Tensor");
  ops.add_native<"npu_gelu", gelu>("(Tensor input, *, str approximate='none') -> Tensor")
      .autograd<gelu_derivative, Saves<0>>();
  ops.add_native<"npu_gelu_backward", gelu_backward>(
      "(Tensor grad_output, Tensor input, *, str approximate='none') -> Tensor");
  ops.add<"npu_gelu_mul", gelu_mul>("(Tensor input, *, str approximate='none') -> Tensor");
  ops.add_native<"npu_silu", silu>("(Tensor input) -> Tensor").autograd<silu_derivative, Saves<0>, Saves<0>>();
  ops.add_native<"npu_silu_", silu_>("(Tensor(a!) input) -> Tensor(a!)");
  ops.add_native<"npu_silu_backward", silu_backward>("(Tensor grad_output, Tensor x0, Tensor x1) -> Tensor");
  ops.add<"npu_mish", mish>("(Tensor input) -> Tensor").autograd<mish_derivative, Saves<0>>();
  ops.add<"npu_mish_backward", mish_backward>("(Tensor grad, Tensor input) -> Tensor");
  ops.add<"npu_swiglu", swiglu>("(Tensor input, int dim=-1) -> Tensor").autograd<swiglu_derivative, Saves<0>>();
  ops.add<"npu_swiglu_backward", swiglu_backward>("(Tensor grad_output, Tensor input, int dim=-1) -> Tensor");
  ops.add<"npu_clipped_swiglu", clipped_swiglu>(
      "(Tensor x, *, Tensor? group_index=None, int dim=-1, float alpha=1.702, float limit=7.0, float bias=1.0, "
      "bool interleaved=True) -> Tensor");
  ops.add<"npu_geglu", geglu>(
         "(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)")
      .autograd<geglu_derivative, Saves<0>, Saves<1>>();
  ops.add<"npu_geglu_grad", geglu_grad>(
      "(Tensor grad_output, Tensor input, Tensor gelu, int dim=-1, int approximate=1, bool activate_left=False) "
      "-> Tensor");
}

}  // namespace cann::aten::npu
