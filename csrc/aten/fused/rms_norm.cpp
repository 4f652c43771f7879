// RMS norm. ATen composes it of six operators on every device but CUDA; here large inputs take one kernel each way.
// Everything else, and what needs derivatives of another kind than a gradient, stays composed.

#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <vector>

#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/normalization.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Both kernels expect what is_simple() accepts. Returns the result and rstd.
std::tuple<Tensor, Tensor> forward_kernel(const Tensor& input, at::IntArrayRef normalized_shape,
                                          const OptionalTensor& weight, std::optional<double> eps) {
  const Rows r = rows_of(input, c10::fromIntArrayRefSlow(normalized_shape));
  auto [output, mean, rstd] = normalize(Norm::kRms, input, r, normalized_shape.size(), weight, /*bias=*/std::nullopt,
                                        eps.value_or(std::numeric_limits<float>::epsilon()));
  return {std::move(output), std::move(rstd)};
}

std::tuple<Tensor, Tensor> backward_kernel(const Tensor& grad_out, const Tensor& input,
                                           at::IntArrayRef normalized_shape, const Tensor& rstd,
                                           const OptionalTensor& weight, std::array<bool, 2> output_mask) {
  const Rows r = rows_of(input, c10::fromIntArrayRefSlow(normalized_shape));
  auto [grad_input, grad_weight, grad_bias] =
      normalize_backward(Norm::kRms, grad_out, input, r, /*mean=*/std::nullopt, rstd, weight, /*bias=*/std::nullopt,
                         {output_mask[0], output_mask[1], false});
  return {std::move(grad_input), std::move(grad_weight)};
}

// The same in operators that have derivatives, in float32. With h = x rstd and g = dy weight: dx = (g - h mean(g h))
// rstd and dweight = sum dy h.
std::tuple<Tensor, Tensor> backward_by_formula(const Tensor& grad_out, const Tensor& input, size_t dims,
                                               const OptionalTensor& weight, double eps) {
  std::vector<int64_t> last(dims);
  for (size_t i = 0; i < dims; ++i) last[i] = -static_cast<int64_t>(dims - i);
  const Tensor x = input.to(at::kFloat), dy = grad_out.to(at::kFloat);
  const Tensor rstd = x.square().mean(last, /*keepdim=*/true).add(eps).rsqrt(), h = x * rstd;
  const Tensor g = present(weight) ? dy * *weight : dy;
  return {((g - h * (g * h).mean(last, /*keepdim=*/true)) * rstd).to(input.scalar_type()),
          present(weight) ? (dy * h).sum_to_size(weight->sizes()).to(weight->scalar_type()) : Tensor()};
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input, at::IntArrayRef shape,
                        const OptionalTensor& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [output, rstd] = NativeKernel<at::_ops::_fused_rms_norm, &forward_kernel>::call(input, shape, weight, eps);
    context->save_for_backward({input, weight.value_or(Tensor()), rstd});
    context->saved_data["dims"] = static_cast<int64_t>(shape.size());
    context->saved_data["eps"] = eps;
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &rstd = saved[2];
    const OptionalTensor weight = saved[1].defined() ? OptionalTensor(saved[1]) : std::nullopt;
    const auto dims = static_cast<size_t>(context->saved_data["dims"].toInt());
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
    const Tensor grad_out = grads[0].contiguous();
    auto [grad_input, grad_weight] = [&] {
      if (at::GradMode::is_enabled() || !is_plain(grad_out, input.device()) ||
          grad_out.scalar_type() != input.scalar_type()) {
        return backward_by_formula(grad_out, input, dims, weight, context->saved_data["eps"].toDouble());
      }
      const at::IntArrayRef shape = input.sizes().slice(input.dim() - static_cast<int64_t>(dims));
      return NativeKernel<at::_ops::_fused_rms_norm_backward, &backward_kernel>::call(
          grad_out, input, shape, rstd, weight,
          {context->needs_input_grad(0), weight.has_value() && context->needs_input_grad(1)});
    }();
    return {std::move(grad_input), Tensor(), std::move(grad_weight), Tensor()};
  }
};

std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                                          const OptionalTensor& weight, std::optional<double> eps) {
  const bool simple = is_an_ordinary_tensor(input) && is_an_ordinary_tensor(weight) &&
                      rows_of(input, c10::fromIntArrayRefSlow(normalized_shape)).rows >= 0 &&
                      are_parameters(input, weight, /*bias=*/std::nullopt, c10::fromIntArrayRefSlow(normalized_shape));
  if (!simple) return at::compositeimplicitautograd::_fused_rms_norm(input, normalized_shape, weight, eps);
  // rms_norm() uses the first result only.
  return {RmsNorm::apply(input, normalized_shape, weight, eps.value_or(std::numeric_limits<float>::epsilon())),
          Tensor()};
}

}  // namespace

void register_fused_rms_norm(torch::Library& autograd) { autograd.impl("_fused_rms_norm", TORCH_FN(fused_rms_norm)); }

}  // namespace cann::aten
