// Batch normalisation in the parts that torch.nn.SyncBatchNorm calls between its collectives. The CPU has no kernels
// for them; they are compositions of operators that any device has. The dimension of channels is 1; statistics have one
// element per channel and are float32 for 16-bit inputs, else of the input's dtype.

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <tuple>

#include "aten/register.h"

namespace cann::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool present(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

at::ScalarType statistics_type(const at::Tensor& input) { return at::toOpMathType(input.scalar_type()); }

// All dimensions but that of channels.
c10::DimVector reduced_dimensions(const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "batch norm expects (N, C, ...), but got an input of shape ", input.sizes());
  c10::DimVector dims;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

// (C) as (1, C, 1, ...), to be broadcast over `input`, in the type of its statistics.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  c10::DimVector shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return values.to(statistics_type(input)).view(shape);
}

std::tuple<at::Tensor, at::Tensor> local_stats(const at::Tensor& input, double eps) {
  auto [variance, mean] =
      at::var_mean(input.to(statistics_type(input)), reduced_dimensions(input), /*correction=*/at::Scalar(0));
  return {std::move(mean), variance.add_(eps).rsqrt_()};
}

// running = (1 - momentum) * running + momentum * value, in the dtype of `running`.
void update_running(const OptionalTensor& running, const at::Tensor& value, double momentum) {
  if (present(running)) at::Tensor(*running).lerp_(value.to(running->scalar_type()), momentum);
}

// Statistics over all ranks of those of each: `mean` and `invstd` are (ranks, C), `counts` (ranks) elements per
// channel.
std::tuple<at::Tensor, at::Tensor> gather_stats_with_counts(const at::Tensor& /*input*/, const at::Tensor& mean,
                                                            const at::Tensor& invstd,
                                                            const OptionalTensor& running_mean,
                                                            const OptionalTensor& running_var, double momentum,
                                                            double eps, const at::Tensor& counts) {
  const at::Tensor weight = counts.to(mean.scalar_type()).view({-1, 1});
  const at::Tensor total = weight.sum();
  at::Tensor all_mean = (mean * weight).sum(0) / total;
  // Chan's formula: the squares within each rank and those of the ranks' means.
  const at::Tensor squares = ((invstd.pow(-2) - eps + (mean - all_mean).square()) * weight).sum(0);
  update_running(running_mean, all_mean, momentum);
  update_running(running_var, squares / (total - 1), momentum);
  return {std::move(all_mean), (squares / total + eps).rsqrt()};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& input, const at::Tensor& mean,
                                                const at::Tensor& invstd, const OptionalTensor& running_mean,
                                                const OptionalTensor& running_var, double momentum, double eps,
                                                int64_t count) {
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                                  at::full({mean.size(0)}, count, mean.options()));
}

at::Tensor normalise(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                     const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  const at::Tensor scale = present(weight) ? invstd * *weight : invstd;
  at::Tensor out = (input - per_channel(mean, input)).mul_(per_channel(scale, input));
  if (present(bias)) out.add_(per_channel(*bias, input));
  return out.to(input.scalar_type());
}

at::Tensor& normalise_out(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                          const at::Tensor& mean, const at::Tensor& invstd, double eps, at::Tensor& out) {
  out.resize_(input.sizes());
  return out.copy_(normalise(input, weight, bias, mean, invstd, eps));
}

// sum(dy), sum(dy * (x - mean)) and the gradients of weight and bias; what no flag asks for is undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& weight, bool input_g, bool weight_g, bool bias_g) {
  const auto dims = reduced_dimensions(input);
  const at::Tensor grad = grad_out.to(statistics_type(input));
  const at::Tensor sum_dy = grad.sum(dims);
  const at::Tensor sum_dy_xmu = (grad * (input - per_channel(mean, input))).sum(dims);
  const auto type = present(weight) ? weight->scalar_type() : sum_dy.scalar_type();
  return {input_g ? sum_dy : at::Tensor(), input_g ? sum_dy_xmu : at::Tensor(),
          weight_g ? (sum_dy_xmu * invstd).to(type) : at::Tensor(),
          bias_g ? sum_dy.to(type, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
}

// The input's gradient; `count` (ranks) elements per channel, the sums over all ranks.
at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const OptionalTensor& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const at::Tensor total = count.sum();
  const at::Tensor slope = sum_dy_xmu / total * invstd.square();
  const at::Tensor scale = present(weight) ? invstd * *weight : invstd;
  at::Tensor grad = grad_out.to(statistics_type(input)) - per_channel(sum_dy / total, input);
  grad = grad.sub_((input - per_channel(mean, input)).mul_(per_channel(slope, input))).mul_(per_channel(scale, input));
  return grad.to(input.scalar_type());
}

}  // namespace

void register_sync_batch_norm(torch::Library& aten) {
  aten.impl("batch_norm_stats", TORCH_FN(local_stats));
  aten.impl("batch_norm_gather_stats", TORCH_FN(gather_stats));
  aten.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats_with_counts));
  aten.impl("batch_norm_elemt", TORCH_FN(normalise));
  aten.impl("batch_norm_elemt.out", TORCH_FN(normalise_out));
  aten.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  aten.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

}  // namespace cann::aten
