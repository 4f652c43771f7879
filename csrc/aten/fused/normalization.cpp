// Layer norm of contiguous float32 and 16-bit tensors, batch norm of float32; all else takes the direct kernel.
//
// N batch, C channels, S the other dimensions. Sums are in an order of our own, so results differ from the CPU's in the
// last bits; they do not depend on the number of threads.

#include <algorithm>
#include <array>
#include <cmath>

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/float_values.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/normalization.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;

// ---- Layer norm

Tensors3 layer_norm(const Tensor& input, c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                    const OptionalTensor& bias, double eps) {
  const Rows r = input.defined() ? rows_of(input, normalized_shape) : Rows{};
  if (r.rows < 0 || !are_parameters(input, weight, bias, normalized_shape)) {
    return general<at::_ops::native_layer_norm>(input, normalized_shape, weight, bias, eps);
  }
  auto [output, mean, rstd] = normalize(Norm::kLayer, input, r, normalized_shape.size(), weight, bias, eps);
  // ATen's moments are of the parameters' type, or the input's without parameters.
  const at::ScalarType moments = (present(weight) ? *weight : present(bias) ? *bias : input).scalar_type();
  return {std::move(output), rounded_to(std::move(mean), moments), rounded_to(std::move(rstd), moments)};
}

Tensors3 layer_norm_backward(const Tensor& grad_out, const Tensor& input, c10::SymIntArrayRef normalized_shape,
                             const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
                             const OptionalTensor& bias, std::array<bool, 3> output_mask) {
  const Rows r = input.defined() ? rows_of(input, normalized_shape) : Rows{};
  const auto are_moments = [&](const Tensor& t) {
    return is_plain(t, input.device()) && t.numel() == r.rows && element_of(t.scalar_type()).has_value();
  };
  if (r.rows < 0 || !are_parameters(input, weight, bias, normalized_shape) || !is_plain(grad_out, input.device()) ||
      grad_out.sizes() != input.sizes() || grad_out.scalar_type() != input.scalar_type() || !are_moments(mean) ||
      !are_moments(rstd) || (output_mask[1] && !present(weight)) || (output_mask[2] && !present(bias))) {
    return general<at::_ops::native_layer_norm_backward>(grad_out, input, normalized_shape, mean, rstd, weight, bias,
                                                         output_mask);
  }
  return normalize_backward(Norm::kLayer, grad_out, input, r, mean, rstd, weight, bias, output_mask);
}

// ---- Batch norm in training: [N, C, S]

bool is_batch(const Tensor& input) {
  return input.defined() && input.dim() >= 2 && is_plain_float(input, input.device()) &&
         input.numel() >= kOwnKernelElements &&
         input.numel() > input.size(1);  // a single value per channel has no variance
}

kernels::Channel channel_of(const Tensor& input) {
  const int64_t size = input.numel() / (input.size(0) * input.size(1));
  return {.planes = input.size(0), .stride = input.size(1) * size, .size = size};
}

void update_running(const OptionalTensor& running, int64_t c, double momentum, float value) {
  if (!present(running)) return;
  float& old = running->mutable_data_ptr<float>()[c];
  old = static_cast<float>(momentum * value + (1 - momentum) * old);
}

Tensors3 batch_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                    double momentum, double eps) {
  const auto fits = [&](const OptionalTensor& t) { return is_plain_float_or_absent(t, input.device(), input.size(1)); };
  if (!training || !is_batch(input) || !fits(weight) || !fits(bias) || !fits(running_mean) || !fits(running_var)) {
    return general<at::_ops::native_batch_norm>(input, weight, bias, running_mean, running_var, training, momentum,
                                                eps);
  }
  const kernels::NormalizationKernels& kernel = *kernels::kernels().normalization;
  const kernels::Channel channel = channel_of(input);
  const int64_t channels = input.size(1);
  Tensor output = empty_like_dense(input), save_mean = empty_contiguous({channels}, at::kFloat, input.device()),
         save_invstd = empty_contiguous({channels}, at::kFloat, input.device());
  const float *x = input.const_data_ptr<float>(), *scale = data_or_null(weight), *shift = data_or_null(bias);
  float *y = output.mutable_data_ptr<float>(), *means = save_mean.mutable_data_ptr<float>(),
        *invstds = save_invstd.mutable_data_ptr<float>();
  const double count = static_cast<double>(channel.planes * channel.size);
  parallel(channels, channel.planes * channel.size, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float* xc = x + c * channel.size;
      float mean = 0, variance = 0;
      kernel.channel_moments(xc, channel, mean, variance);
      const auto invstd = static_cast<float>(1.0 / std::sqrt(static_cast<double>(variance) + eps));
      const float a = invstd * (scale == nullptr ? 1.0f : scale[c]);
      kernel.channel_affine(y + c * channel.size, xc, channel, a, (shift == nullptr ? 0.0f : shift[c]) - mean * a);
      means[c] = mean, invstds[c] = invstd;
      update_running(running_mean, c, momentum, mean);
      update_running(running_var, c, momentum, static_cast<float>(variance * (count / (count - 1))));
    }
  });
  return {std::move(output), std::move(save_mean), std::move(save_invstd)};
}

Tensors3 batch_norm_backward(const Tensor& grad_out, const Tensor& input, const OptionalTensor& weight,
                             const OptionalTensor& running_mean, const OptionalTensor& running_var,
                             const OptionalTensor& save_mean, const OptionalTensor& save_invstd, bool train, double eps,
                             std::array<bool, 3> output_mask) {
  if (!train || !is_batch(input) || !is_plain_float(grad_out, input.device()) || grad_out.sizes() != input.sizes() ||
      !present(save_mean) || !present(save_invstd) ||
      !is_plain_float_or_absent(weight, input.device(), input.size(1)) ||
      !is_plain_float_or_absent(save_mean, input.device(), input.size(1)) ||
      !is_plain_float_or_absent(save_invstd, input.device(), input.size(1))) {
    return general<at::_ops::native_batch_norm_backward>(grad_out, input, weight, running_mean, running_var, save_mean,
                                                         save_invstd, train, eps, output_mask);
  }
  const kernels::NormalizationKernels& kernel = *kernels::kernels().normalization;
  const kernels::Channel channel = channel_of(input);
  const int64_t channels = input.size(1);
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) grad_input = empty_like_dense(input);
  if (output_mask[1]) grad_weight = empty_contiguous({channels}, at::kFloat, input.device());
  if (output_mask[2]) grad_bias = empty_contiguous({channels}, at::kFloat, input.device());
  const float *dy = grad_out.const_data_ptr<float>(), *x = input.const_data_ptr<float>(), *scale = data_or_null(weight),
              *means = save_mean->const_data_ptr<float>(), *invstds = save_invstd->const_data_ptr<float>();
  float* dx = output_mask[0] ? grad_input.mutable_data_ptr<float>() : nullptr;
  float* dweight = output_mask[1] ? grad_weight.mutable_data_ptr<float>() : nullptr;
  float* dbias = output_mask[2] ? grad_bias.mutable_data_ptr<float>() : nullptr;
  const double count = static_cast<double>(channel.planes * channel.size);
  parallel(channels, channel.planes * channel.size, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t at = c * channel.size;
      double sum = 0, product = 0;
      kernel.channel_gradient_sums(dy + at, x + at, channel, means[c], sum, product);
      if (dx != nullptr) {
        const double invstd = invstds[c];
        kernel.channel_backward(dx + at, dy + at, x + at, channel, means[c], static_cast<float>(sum / count),
                                static_cast<float>(product * invstd * invstd / count),
                                invstds[c] * (scale == nullptr ? 1.0f : scale[c]));
      }
      if (dweight != nullptr) dweight[c] = static_cast<float>(product * invstds[c]);
      if (dbias != nullptr) dbias[c] = static_cast<float>(sum);
    }
  });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace

void register_fused_normalizations(torch::Library& aten) {
  register_native<at::_ops::native_layer_norm, &layer_norm>(aten);
  register_native<at::_ops::native_layer_norm_backward, &layer_norm_backward>(aten);
  register_native<at::_ops::native_batch_norm, &batch_norm>(aten);
  register_native<at::_ops::native_batch_norm_backward, &batch_norm_backward>(aten);
}

}  // namespace cann::aten
