// Normalisations: RMSNorm with its residual forms, layer norm with a residual, deep norm, group norm with an
// activation. Statistics are float32; the normalised dimensions are the last gamma.dim() ones.

#include "aten/fused/float_values.h"
#include "aten/fused/normalization.h"
#include "aten/npu/families.h"
#include "aten/npu/floating.h"
#include "aten/npu/raw_memory.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

// The last `count` dimensions.
c10::DimVector last_dims(const Tensor& x, int64_t count) {
  c10::DimVector dims;
  for (int64_t d = x.dim() - count; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}
// All dimensions before the last `count`.
c10::DimVector leading_dims(const Tensor& x, int64_t count) {
  c10::DimVector dims;
  for (int64_t d = 0; d < x.dim() - count; ++d) dims.push_back(d);
  return dims;
}

void check_gamma(const Tensor& x, const Tensor& gamma, const char* op) {
  check_floating(x, "input", op);
  check_floating(gamma, "gamma", op);
  CANN_CHECK_OP(gamma.dim() >= 1 && gamma.dim() <= x.dim(), op, ": gamma must have from 1 to ", x.dim(),
                " dimensions, as input has sizes ", x.sym_sizes(), ", but has sizes ", gamma.sym_sizes());
  const auto tail = x.sym_sizes().slice(static_cast<size_t>(x.dim() - gamma.dim()));
  CANN_CHECK_OP(gamma.sym_sizes().equals(tail), op, ": gamma must have the sizes of input's last dimensions, ", tail,
                ", but has sizes ", gamma.sym_sizes());
}

// The two tensors whose sum is normalised.
void check_summands(const Tensor& x1, const Tensor& x2, const char* op) {
  CANN_CHECK_OP(x1.sym_sizes() == x2.sym_sizes(), op, ": the tensors to add must have the same sizes, but have ",
                x1.sym_sizes(), " and ", x2.sym_sizes());
}

Tensor sum_leading(const Tensor& x, int64_t normalized) {
  const auto dims = leading_dims(x, normalized);
  return dims.empty() ? x : x.sum(dims);
}

// ---- RMSNorm: y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + epsilon)

// The arithmetic core, on tensors of the compute type. rstd keeps the normalised dimensions with size 1.
Tensor rms_rstd(const Tensor& x, int64_t normalized, double epsilon) {
  return x.square().mean(last_dims(x, normalized), /*keepdim=*/true).add_(epsilon).rsqrt_();
}

// Both passes over contiguous rows in one go, where memory allows it: rows < 0 where it does not.
Rows raw_rows(const Tensor& input, const Tensor& gamma) {
  if (!raw_element({&input}).has_value() || !raw_element({&gamma}).has_value() || !input.is_contiguous() ||
      !gamma.is_contiguous() || input.numel() == 0 ||
      (gamma.scalar_type() != input.scalar_type() && gamma.scalar_type() != at::kFloat)) {
    return {};
  }
  return {input.numel() / gamma.numel(), gamma.numel()};
}

RowNorm rms_of(const Tensor& input, const Rows& rows, const FloatValues& gamma, double epsilon) {
  return {*raw_element({&input}), rows, {rows.columns, gamma.data(), nullptr, epsilon, /*centered=*/false}};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& input, const Tensor& gamma, double epsilon) {
  check_gamma(input, gamma, "npu_rms_norm");
  if (const Rows rows = raw_rows(input, gamma); rows.rows >= 0) {
    Tensor y = at::empty_like(input),
           rstd = at::empty(moments_shape(input, static_cast<size_t>(gamma.dim())), input.options().dtype(at::kFloat));
    const FloatValues weight(gamma);
    normalize_rows(rms_of(input, rows, weight, epsilon), y.mutable_data_ptr(), nullptr, rstd.mutable_data_ptr<float>(),
                   input.const_data_ptr());
    return {std::move(y), std::move(rstd)};
  }
  const Tensor x = wide(input);
  Tensor rstd = rms_rstd(x, gamma.dim(), epsilon);
  return {x.mul(rstd).mul_(gamma).to(input.scalar_type()), rstd};
}

// Gradients of x and gamma in the compute type; the first operand of rms_norm's gradient is (dy * gamma).
std::tuple<Tensor, Tensor> rms_gradients(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& rstd) {
  const Tensor normal = x.mul(rstd);
  const Tensor d_gamma = sum_leading(dy.mul(normal), gamma.dim());
  const Tensor d_normal = dy.mul(gamma);
  const Tensor projection = d_normal.mul(normal).mean(last_dims(x, gamma.dim()), /*keepdim=*/true);
  return {d_normal.sub_(normal.mul(projection)).mul_(rstd), d_gamma};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& dy, const Tensor& input, const Tensor& gamma,
                                             const Tensor& rstd) {
  check_gamma(input, gamma, "npu_rms_norm_backward");
  const Rows rows = raw_rows(input, gamma);
  if (rows.rows >= 0 && raw_element({&dy, &input}).has_value() && dy.is_contiguous() && dy.sizes() == input.sizes() &&
      raw_element({&rstd}) == kernels::Element::kFloat32 && rstd.is_contiguous() && rstd.numel() == rows.rows) {
    const auto floats = rstd.options();
    Tensor dx = at::empty_like(input), d_gamma = at::empty(gamma.sizes(), floats),
           sums = at::empty({floats_of_partial_sums(rows, true, false)}, floats);
    const FloatValues weight(gamma);
    normalize_rows_backward(rms_of(input, rows, weight, 0.0),
                            {dx.mutable_data_ptr(), d_gamma.mutable_data_ptr<float>(), nullptr}, dy.const_data_ptr(),
                            input.const_data_ptr(), nullptr, rstd.const_data_ptr<float>(),
                            sums.mutable_data_ptr<float>());
    return {std::move(dx), d_gamma.to(gamma.scalar_type())};
  }
  auto [dx, d_gamma] = rms_gradients(wide(dy), wide(input), wide(gamma), rstd);
  return {dx.to(input.scalar_type()), d_gamma.to(gamma.scalar_type())};
}

variable_list rms_norm_derivative(Context<rms_norm>& c) {
  auto [dx, d_gamma] =
      Operator<"npu_rms_norm_backward", rms_norm_backward>::call(c.grad(0), c.input<0>(), c.input<1>(), c.output<1>());
  return {dx, d_gamma};
}

// x * rstd * (1 + gamma)
std::tuple<Tensor, Tensor> gemma_rms_norm(const Tensor& input, const Tensor& gamma, double epsilon) {
  check_gamma(input, gamma, "npu_gemma_rms_norm");
  const Tensor x = wide(input);
  Tensor rstd = rms_rstd(x, gamma.dim(), epsilon);
  return {x.mul(rstd).mul_(wide(gamma).add(1)).to(input.scalar_type()), rstd};
}

// Returns (rms_norm(x1 + x2), rstd, x1 + x2). The sum is rounded before it is normalised, as the next layer sees it.
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x1, const Tensor& x2, const Tensor& gamma,
                                                double epsilon) {
  CANN_CHECK_OP(x1.sym_sizes().equals(x2.sym_sizes()), "npu_add_rms_norm: x1 and x2 must have the same sizes, but got ",
                x1.sym_sizes(), " and ", x2.sym_sizes());
  Tensor sum = x1.add(x2);
  auto [y, rstd] = rms_norm(sum, gamma, epsilon);
  return {y, rstd, sum};
}

// The same, with y in float32 before y in the input's type.
std::tuple<Tensor, Tensor, Tensor, Tensor> add_rms_norm_cast(const Tensor& x1, const Tensor& x2, const Tensor& gamma,
                                                             double epsilon) {
  Tensor sum = x1.add(x2);
  check_gamma(sum, gamma, "npu_add_rms_norm_cast");
  const Tensor x = wide(sum);
  Tensor rstd = rms_rstd(x, gamma.dim(), epsilon);
  Tensor y = x.mul(rstd).mul_(gamma);
  return {y.to(at::kFloat), y.to(x1.scalar_type()), rstd, sum};
}

// Writes y into x1 and the sum into x2; returns rstd.
Tensor add_rms_norm_v2(Tensor& x1, Tensor& x2, const Tensor& gamma, double epsilon) {
  auto [y, rstd, sum] = add_rms_norm(x1, x2, gamma, epsilon);
  x1.copy_(y);
  x2.copy_(sum);
  return rstd;
}

// ---- Layer norm

struct LayerNorm {
  Tensor y, mean, rstd;
};
LayerNorm layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const auto dims = last_dims(x, gamma.dim());
  Tensor mean = x.mean(dims, /*keepdim=*/true);
  Tensor centred = x.sub(mean);
  Tensor rstd = centred.square().mean(dims, /*keepdim=*/true).add_(epsilon).rsqrt_();
  Tensor y = centred.mul_(rstd).mul_(gamma);
  if (beta.defined()) y.add_(beta);
  return {std::move(y), std::move(mean), std::move(rstd)};
}

struct LayerNormGradients {
  Tensor x, gamma, beta;
};
LayerNormGradients layer_norm_gradients(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                        const Tensor& gamma) {
  const auto dims = last_dims(x, gamma.dim());
  const Tensor normal = x.sub(mean).mul_(rstd);
  const Tensor d_normal = dy.mul(gamma);
  const Tensor projection = d_normal.mul(normal).mean(dims, /*keepdim=*/true);
  const Tensor shift = d_normal.mean(dims, /*keepdim=*/true);
  return {d_normal.sub(shift).sub_(normal.mul(projection)).mul_(rstd), sum_leading(dy.mul(normal), gamma.dim()),
          sum_leading(dy, gamma.dim())};
}

// Returns (layer_norm(x1 + x2), mean, rstd, x1 + x2); the last is empty unless additional_output.
std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm(const Tensor& x1, const Tensor& x2, const Tensor& gamma,
                                                          const Tensor& beta, double epsilon, bool additional_output) {
  check_gamma(x1, gamma, "npu_add_layer_norm");
  check_summands(x1, x2, "npu_add_layer_norm");
  const Tensor sum = wide(x1).add(wide(x2));
  auto norm = layer_norm(sum, wide(gamma), wide(beta), epsilon);
  const auto type = x1.scalar_type();
  return {norm.y.to(type), norm.mean, norm.rstd, additional_output ? sum.to(type) : at::empty({0}, x1.options())};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_layer_norm_backward(const OptionalTensor& dy_opt, const Tensor& x1,
                                                                   const Tensor& x2, const Tensor& rstd,
                                                                   const Tensor& mean, const Tensor& gamma,
                                                                   const OptionalTensor& dsum_opt) {
  const Tensor sum = wide(x1).add(wide(x2));
  const Tensor dy = has(dy_opt) ? wide(*dy_opt) : at::zeros_like(sum);
  auto grads = layer_norm_gradients(dy, sum, mean, rstd, wide(gamma));
  if (has(dsum_opt)) grads.x.add_(wide(*dsum_opt));
  const Tensor dx = grads.x.to(x1.scalar_type());
  return {dx, dx.clone(), grads.gamma.to(gamma.scalar_type()), grads.beta.to(gamma.scalar_type())};
}

variable_list add_layer_norm_derivative(Context<add_layer_norm>& c) {
  const Tensor& dy = c.grad(0);
  // An empty x_out has no gradient.
  const OptionalTensor dsum = c.input<5>() && c.grad(1).defined() ? OptionalTensor(c.grad(1)) : std::nullopt;
  auto [dx1, dx2, d_gamma, d_beta] = Operator<"npu_add_layer_norm_backward", add_layer_norm_backward>::call(
      dy.defined() ? OptionalTensor(dy) : std::nullopt, c.input<0>(), c.input<1>(), c.output<2>(), c.output<1>(),
      c.input<2>(), dsum);
  return {dx1, dx2, d_gamma, d_beta};
}

// layer_norm(alpha * x + gx). Returns (mean, rstd, y).
std::tuple<Tensor, Tensor, Tensor> deep_norm(const Tensor& x, const Tensor& gx, const Tensor& beta, const Tensor& gamma,
                                             double alpha, double epsilon) {
  check_gamma(x, gamma, "npu_deep_norm");
  check_summands(x, gx, "npu_deep_norm");
  auto norm = layer_norm(wide(gx).add(wide(x), alpha), wide(gamma), wide(beta), epsilon);
  return {norm.mean, norm.rstd, norm.y.to(x.scalar_type())};
}

// Returns gradients of (x, gx, beta, gamma).
std::tuple<Tensor, Tensor, Tensor, Tensor> deep_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gx,
                                                              const Tensor& gamma, const Tensor& mean,
                                                              const Tensor& rstd, double alpha) {
  const auto grads = layer_norm_gradients(wide(dy), wide(gx).add(wide(x), alpha), mean, rstd, wide(gamma));
  return {grads.x.mul(alpha).to(x.scalar_type()), grads.x.to(gx.scalar_type()), grads.beta.to(at::kFloat),
          grads.gamma.to(at::kFloat)};
}

variable_list deep_norm_derivative(Context<deep_norm>& c) {
  const Tensor gamma = c.input<3>();
  auto [dx, dgx, d_beta, d_gamma] = Operator<"npu_deep_norm_backward", deep_norm_backward>::call(
      c.grad(0), c.input<0>(), c.input<1>(), gamma, c.output<0>(), c.output<1>(), c.input<4>());
  return {dx, dgx, d_beta.to(gamma.scalar_type()), d_gamma.to(gamma.scalar_type())};
}

// Layer norm for inference.
Tensor layer_norm_eval(const Tensor& input, IntArrayRef normalized_shape, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps) {
  return at::layer_norm(input, normalized_shape, weight, bias, eps);
}

// ---- Group norm with an activation. input (N, C, ...), statistics (N, groups).

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias, int64_t groups, double eps, const char* op) {
  CANN_CHECK_OP(input.dim() >= 2, op, ": input must be (N, C, ...), but has sizes ", input.sym_sizes());
  CANN_CHECK_OP(groups > 0 && input.sym_size(1) % groups == 0, op, ": the ", input.sym_size(1),
                " channels of input must be divisible by the number of groups, ", groups);
  const Tensor x = wide(input).reshape_symint({input.sym_size(0), groups, -1});
  Tensor mean = x.mean({-1}, /*keepdim=*/true);
  Tensor centred = x.sub(mean);
  Tensor rstd = centred.square().mean({-1}, /*keepdim=*/true).add_(eps).rsqrt_();
  Tensor y = centred.mul_(rstd).reshape_symint(input.sym_sizes());
  for (const OptionalTensor& t : {weight, bias}) {
    CANN_CHECK_OP(!has(t) || t->sym_numel() == input.sym_size(1), op, ": weight and bias must have one value for each ",
                  "of the ", input.sym_size(1), " channels of input, but one has sizes ", t->sym_sizes());
  }
  c10::DimVector per_channel(static_cast<size_t>(input.dim()), 1);
  per_channel[1] = -1;
  if (has(weight)) y.mul_(wide(*weight).reshape(per_channel));
  if (has(bias)) y.add_(wide(*bias).reshape(per_channel));
  return {y, mean.squeeze(-1), rstd.squeeze(-1)};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_silu(const Tensor& input, const OptionalTensor& weight,
                                                   const OptionalTensor& bias, int64_t group, double eps) {
  auto [y, mean, rstd] = group_norm(input, weight, bias, group, eps, "npu_group_norm_silu");
  const auto type = input.scalar_type();
  return {at::silu(y).to(type), mean.to(type), rstd.to(type)};
}

// y * sigmoid(swish_scale * y) of the group norm y.
std::tuple<Tensor, Tensor, Tensor> group_norm_swish(const Tensor& input, int64_t num_groups, const Tensor& weight,
                                                    const Tensor& bias, std::optional<double> eps,
                                                    std::optional<double> swish_scale) {
  auto [y, mean, rstd] = group_norm(input, weight, bias, num_groups, eps.value_or(1e-5), "npu_group_norm_swish");
  return {y.mul(y.mul(swish_scale.value_or(1.0)).sigmoid_()).to(input.scalar_type()), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_swish_grad(const Tensor& grad, const Tensor& input, int64_t num_groups,
                                                         const Tensor& weight, const Tensor& bias, const Tensor& mean,
                                                         const Tensor& rstd, std::array<bool, 3>,
                                                         std::optional<double> swish_scale) {
  CANN_CHECK_OP(input.dim() >= 2 && num_groups > 0 && input.sym_size(1) % num_groups == 0,
                "npu_group_norm_swish_grad: ",
                "input must be (N, C, ...) with C divisible by the number of groups, but has sizes ", input.sym_sizes(),
                " for ", num_groups, " groups");
  const double scale = swish_scale.value_or(1.0);
  const SymInt batch = input.sym_size(0), channels = input.sym_size(1);
  // (N, G, C / G, rest); weight as (1, G, C / G, 1)
  const std::vector<SymInt> grouped{batch, num_groups, channels / num_groups, -1};
  const std::vector<SymInt> per_channel{1, num_groups, channels / num_groups, 1};
  const Tensor x = wide(input).reshape_symint(grouped);
  const Tensor m = mean.to(x.scalar_type()).reshape_symint({batch, num_groups, 1, 1});
  const Tensor r = rstd.to(x.scalar_type()).reshape_symint({batch, num_groups, 1, 1});
  const Tensor w = wide(weight).reshape_symint(per_channel);
  const Tensor normal = x.sub(m).mul_(r);
  const Tensor y = normal.mul(w).add_(wide(bias).reshape_symint(per_channel));
  const Tensor s = y.mul(scale).sigmoid_();
  // d/dy of y * s is s * (1 + scale * y * (1 - s))
  const Tensor dy = s.neg().add_(1).mul_(y).mul_(scale).add_(1).mul_(s).mul_(wide(grad).reshape_symint(grouped));
  const Tensor d_normal = dy.mul(w);
  const Tensor projection = d_normal.mul(normal).mean({2, 3}, /*keepdim=*/true);
  const Tensor dx = d_normal.sub(d_normal.mean({2, 3}, /*keepdim=*/true)).sub_(normal.mul(projection)).mul_(r);
  return {dx.reshape_symint(input.sym_sizes()).to(input.scalar_type()),
          dy.mul(normal).sum({0, 3}).reshape(-1).to(weight.scalar_type()),
          dy.sum({0, 3}).reshape(-1).to(bias.scalar_type())};
}

variable_list group_norm_swish_derivative(Context<group_norm_swish>& c) {
  auto [dx, dw, db] = Operator<"npu_group_norm_swish_grad", group_norm_swish_grad>::call(
      c.grad(0), c.input<0>(), c.input<1>(), c.input<2>(), c.input<3>(), c.output<1>(), c.output<2>(),
      {true, true, true}, c.input<5>());
  return {dx, dw, db};
}

// ---- Batch norm over several cards: each gives its sums per channel, which are then gathered

std::tuple<Tensor, Tensor> batch_norm_reduce(const Tensor& input, double) {
  CANN_CHECK_OP(input.dim() >= 2, "batch_norm_reduce: input must have at least 2 dimensions, but has sizes ",
                input.sym_sizes());
  c10::DimVector dims{0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  const Tensor x = wide(input);
  return {x.sum(dims), x.square().sum(dims)};
}

std::tuple<Tensor, Tensor> batch_norm_gather(const Tensor&, const Tensor& sums, const Tensor& square_sums,
                                             const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                             double momentum, double eps, const Tensor& counts) {
  CANN_CHECK_OP(sums.dim() == 2 && sums.sym_sizes() == square_sums.sym_sizes(),
                "batch_norm_gather_stats_update: the "
                "sums and the sums of squares must have 2 dimensions and the same sizes, but have ",
                sums.sym_sizes(), " and ", square_sums.sym_sizes());
  const Tensor x = wide(sums), total = counts.to(x.scalar_type()).sum();
  const Tensor mean = x.sum(0).div(total), var = wide(square_sums).sum(0).div(total).sub(mean.square());
  if (has(running_mean)) running_mean->mul_(1 - momentum).add_(mean.to(running_mean->scalar_type()), momentum);
  if (has(running_var)) {
    const Tensor unbiased = var.mul(total.div(total.sub(1)));
    running_var->mul_(1 - momentum).add_(unbiased.to(running_var->scalar_type()), momentum);
  }
  return {mean.to(sums.scalar_type()), var.add(eps).rsqrt_().to(sums.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_grad(const Tensor& grad, const Tensor& input, at::IntArrayRef shape,
                                                   const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
                                                   const OptionalTensor& bias) {
  constexpr const char* kOp = "npu_layernorm_grad";
  CANN_CHECK_OP(static_cast<int64_t>(shape.size()) <= input.dim(), kOp, ": normalized_shape has ", shape.size(),
                " dimensions, but input only the sizes ", input.sym_sizes());
  CANN_CHECK_OP(grad.sym_sizes() == input.sym_sizes(), kOp, ": the gradient must have the sizes of input, ",
                input.sym_sizes(), ", but has ", grad.sym_sizes());
  const SymInt rows =
      c10::multiply_integers(input.sym_sizes().slice(0, static_cast<size_t>(input.dim()) - shape.size()));
  CANN_CHECK_OP(mean.sym_numel() == rows && rstd.sym_numel() == rows, kOp, ": mean and rstd must have one value for ",
                "each of the ", rows, " rows of input, but have sizes ", mean.sym_sizes(), " and ", rstd.sym_sizes());
  return at::native_layer_norm_backward(grad, input, shape, mean, rstd, weight, bias, {true, has(weight), has(bias)});
}

}  // namespace

void register_norm(Registry& ops) {
  ops.add<"batch_norm_reduce", batch_norm_reduce>("(Tensor input, float eps) -> (Tensor, Tensor)");
  ops.add<"batch_norm_gather_stats_update", batch_norm_gather>(
      "(Tensor input, Tensor mean, Tensor invstd, Tensor? running_mean, Tensor? running_var, float momentum, float "
      "eps, Tensor counts) -> (Tensor, Tensor)");
  ops.add_native<"npu_layernorm_grad", layer_norm_grad>(
      "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? "
      "bias) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_rms_norm", rms_norm>("(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)")
      .autograd<rms_norm_derivative, Saves<0, 1>, Saves<1>>();
  ops.add<"npu_rms_norm_backward", rms_norm_backward>(
      "(Tensor dy, Tensor input, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)");
  ops.add<"npu_gemma_rms_norm", gemma_rms_norm>(
      "(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)");
  ops.add<"npu_add_rms_norm", add_rms_norm>(
      "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_add_rms_norm_cast", add_rms_norm_cast>(
      "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor, Tensor)");
  ops.add<"npu_add_rms_norm_v2", add_rms_norm_v2>(
      "(Tensor(a!) x1, Tensor(b!) x2, Tensor gamma, float epsilon=1e-06) -> Tensor");
  ops.add<"npu_add_rms_norm_v2_functional", add_rms_norm>(
      "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_add_layer_norm", add_layer_norm>(
         "(Tensor x1, Tensor x2, Tensor gamma, Tensor beta, float epsilon=1e-05, bool additional_output=False) "
         "-> (Tensor, Tensor, Tensor, Tensor)")
      .autograd<add_layer_norm_derivative, Saves<0, 1, 2>, Saves<1, 2>, Saves<0, 3>>();
  ops.add<"npu_add_layer_norm_backward", add_layer_norm_backward>(
      "(Tensor? dy_opt, Tensor x1, Tensor x2, Tensor rstd, Tensor mean, Tensor gamma, Tensor? dsum_opt) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  ops.add<"npu_deep_norm", deep_norm>(
         "(Tensor x, Tensor gx, Tensor beta, Tensor gamma, float alpha=0.3, float epsilon=1e-06) "
         "-> (Tensor, Tensor, Tensor)")
      .autograd<deep_norm_derivative, Saves<0, 1, 3>, Saves<0, 1>, Saves<2>>();
  ops.add<"npu_deep_norm_backward", deep_norm_backward>(
      "(Tensor dy, Tensor x, Tensor gx, Tensor gamma, Tensor mean, Tensor rstd, float alpha=0.3) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
  ops.add<"npu_layer_norm_eval", layer_norm_eval>(
      "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor");
  ops.add<"npu_group_norm_silu", group_norm_silu>(
      "(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=0.00001) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_group_norm_swish", group_norm_swish>(
         "(Tensor input, int num_groups, Tensor weight, Tensor bias, float? eps=1e-5, float? swish_scale=1.0) "
         "-> (Tensor, Tensor, Tensor)")
      .autograd<group_norm_swish_derivative, Saves<0, 2, 3>, Saves<1, 2>>();
  ops.add<"npu_group_norm_swish_grad", group_norm_swish_grad>(
      "(Tensor grad, Tensor input, int num_groups, Tensor weight, Tensor bias, Tensor mean, Tensor rstd, "
      "bool[3] grad_input_mask, float? swish_scale=1.0) -> (Tensor, Tensor, Tensor)");
}

}  // namespace cann::aten::npu
