// Dropout with packed masks (keep_mask.h). Random numbers are drawn on the npu tensor's card; the arithmetic then runs
// on CPU tensors with the numbers given.

#include "aten/npu/families.h"
#include "aten/npu/keep_mask.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

void check_p(double p, const char* op) {
  CANN_CHECK_OP(p >= 0 && p <= 1, op, ": the probability to drop an element must be from 0 to 1, but got ", p);
}
double rescale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

Tensor apply_mask(const Tensor& input, const Tensor& mask, double p, const char* op) {
  check_p(p, op);
  return wide(input).mul(unpack_mask(mask, input.sizes(), op)).mul_(rescale(p)).to(input.scalar_type());
}

Tensor packed_like(const Tensor& like, const SymInt& elements) {
  return empty_of(like, {packed_mask_bytes(elements)}, at::kByte);
}

// ---- out = input * keep / (1 - p); returns (out, packed mask)

std::tuple<Tensor, Tensor> dropout_on_host(const Tensor& input, double p, int64_t seed, int64_t offset) {
  check_p(p, "_npu_dropout");
  Tensor mask = make_packed_mask(input.numel(), {seed, offset}, 1 - p);
  return {apply_mask(input, mask, p, "_npu_dropout"), mask};
}

std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p) {
  const auto key = take_dropout_key(input.device().index());
  return Operator<"_npu_dropout", dropout_on_host>::hosted(input, p, key.seed, key.offset);
}
std::tuple<Tensor, Tensor> dropout_shape(const Tensor& input, double) {
  return {at::empty_like(input), packed_like(input, input.sym_numel())};
}

Tensor dropout_backward(const Tensor& grad, const Tensor& mask, double p) {
  return apply_mask(grad, mask, p, "npu_dropout_backward");
}
Tensor dropout_backward_shape(const Tensor& grad, const Tensor&, double) { return at::empty_like(grad); }

variable_list dropout_derivative(Context<dropout>& c) {
  return {Operator<"npu_dropout_backward", dropout_backward>::call(c.grad(0), c.output<1>(), c.input<1>())};
}

// Applies a given mask; returns (out, mask).
std::tuple<Tensor, Tensor> dropout_do_mask(const Tensor& input, const Tensor& mask, double p) {
  return {apply_mask(input, mask, p, "npu_dropout_do_mask"), mask.clone()};
}
std::tuple<Tensor, Tensor> dropout_do_mask_shape(const Tensor& input, const Tensor& mask, double) {
  return {at::empty_like(input), at::empty_like(mask)};
}
variable_list dropout_do_mask_derivative(Context<dropout_do_mask>& c) {
  return {Operator<"npu_dropout_backward", dropout_backward>::call(c.grad(0), c.input<1>(), c.input<2>()), Tensor()};
}

// The mask of explicit numbers; `input` only gives the device.
Tensor gen_mask_on_host(const Tensor&, IntArrayRef size, double p, int64_t seed, int64_t offset, std::optional<bool>,
                        std::optional<bool>) {
  check_p(p, "_npu_dropout_gen_mask");
  return make_packed_mask(c10::multiply_integers(size), {seed, offset}, 1 - p);
}
Tensor gen_mask_shape(const Tensor& input, IntArrayRef size, double, int64_t, int64_t, std::optional<bool>,
                      std::optional<bool>) {
  return packed_like(input, c10::multiply_integers(size));
}

// ---- softmax(alpha * input + x1), then dropout; returns (packed mask, softmax, out)

std::tuple<Tensor, Tensor, Tensor> add_softmax_on_host(const Tensor& input, const Tensor& x1, const Scalar& alpha,
                                                       double p, int64_t dim, int64_t seed, int64_t offset) {
  check_p(p, "npu_dropout_with_add_softmax");
  Tensor softmax = wide(x1).add(wide(input), alpha).softmax(dim).to(input.scalar_type());
  Tensor mask = make_packed_mask(softmax.numel(), {seed, offset}, 1 - p);
  Tensor out = apply_mask(softmax, mask, p, "npu_dropout_with_add_softmax");
  return {mask, softmax, out};
}
std::tuple<Tensor, Tensor, Tensor> add_softmax(const Tensor& input, const Tensor& x1, const Scalar& alpha, double p,
                                               int64_t dim) {
  const auto key = take_dropout_key(input.device().index());
  return Operator<"npu_dropout_with_add_softmax", add_softmax_on_host>::hosted(input, x1, alpha, p, dim, key.seed,
                                                                               key.offset);
}
std::tuple<Tensor, Tensor, Tensor> add_softmax_shape(const Tensor& input, const Tensor& x1, const Scalar&, double,
                                                     int64_t) {
  const Tensor y = at::add(x1, input);
  return {packed_like(input, y.sym_numel()), y, at::empty_like(y)};
}

// Returns gradients of input and x1.
std::tuple<Tensor, Tensor> add_softmax_backward(const Tensor& grad, const Tensor& mask, const Tensor& softmax,
                                                const Scalar& alpha, double p, int64_t dim) {
  const Tensor y = wide(softmax);
  const Tensor weighted = wide(apply_mask(grad, mask, p, "npu_dropout_with_add_softmax_backward")).mul(y);
  const Tensor d = weighted.sub(y.mul(weighted.sum(dim, /*keepdim=*/true)));
  return {d.mul(alpha).to(softmax.scalar_type()), d.to(softmax.scalar_type(), false, /*copy=*/true)};
}
std::tuple<Tensor, Tensor> add_softmax_backward_shape(const Tensor&, const Tensor&, const Tensor& softmax,
                                                      const Scalar&, double, int64_t) {
  return {at::empty_like(softmax), at::empty_like(softmax)};
}
variable_list add_softmax_derivative(Context<add_softmax>& c) {
  auto [d_input, d_x1] = Operator<"npu_dropout_with_add_softmax_backward", add_softmax_backward>::call(
      c.grad(0), c.output<0>(), c.output<1>(), c.input<2>(), c.input<3>(), c.input<4>());
  return {d_input, d_x1};
}

}  // namespace

void register_dropout(Registry& ops) {
  ops.add_native<"_npu_dropout", dropout, dropout_shape>("(Tensor input, float p) -> (Tensor, Tensor)",
                                                         Randomness::kDraws)
      .autograd<dropout_derivative, Saves<>, Saves<1>>();
  ops.add<"npu_dropout_backward", dropout_backward, dropout_backward_shape>(
      "(Tensor grad_output, Tensor mask, float p) -> Tensor");
  ops.add<"npu_dropout_do_mask", dropout_do_mask, dropout_do_mask_shape>(
         "(Tensor input, Tensor mask, float p) -> (Tensor, Tensor)")
      .autograd<dropout_do_mask_derivative, Saves<1>>();
  ops.add<"_npu_dropout_gen_mask.Tensor", gen_mask_on_host, gen_mask_shape>(
      "(Tensor input, int[] size, float p, int seed, int offset, *, bool? parallel=True, bool? sync=None) -> Tensor");
  ops.add_native<"npu_dropout_with_add_softmax", add_softmax, add_softmax_shape>(
         "(Tensor input, Tensor x1, Scalar alpha, float prob, int dim) -> (Tensor, Tensor, Tensor)", Randomness::kDraws)
      .autograd<add_softmax_derivative, Saves<>, Saves<0, 1>, Saves<2>>();
  ops.add<"npu_dropout_with_add_softmax_backward", add_softmax_backward, add_softmax_backward_shape>(
      "(Tensor grad, Tensor mask, Tensor softmax_out, Scalar alpha, float prob, int dim) -> (Tensor, Tensor)");
}

}  // namespace cann::aten::npu
