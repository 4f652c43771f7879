// Layer and batch normalisation of contiguous float32 tensors; everything else takes the direct kernel.
//
// N batch, C channels, S the other dimensions. Sums are in an order of our own, so results differ from the CPU's in the
// last bits; they do not depend on the number of threads.

#include <algorithm>
#include <array>
#include <cmath>

#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/normalization.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {

Rows rows_of(const at::Tensor& input, c10::SymIntArrayRef normalized_shape) {
  const auto shape = c10::asIntArrayRefSlowOpt(normalized_shape);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  if (!is_plain_float(input, input.device()) || !shape.has_value() || dims == 0 || dims > input.dim() ||
      input.numel() < kOwnKernelElements || input.sizes().slice(input.dim() - dims) != *shape) {
    return {};
  }
  Rows result;
  for (const int64_t size : *shape) result.columns *= size;
  result.rows = input.numel() / result.columns;
  return result;
}

c10::SmallVector<int64_t, 6> moments_shape(const at::Tensor& input, size_t normalized_dims) {
  c10::SmallVector<int64_t, 6> shape(input.sizes().begin(), input.sizes().end());
  std::fill(shape.end() - static_cast<int64_t>(normalized_dims), shape.end(), 1);
  return shape;
}

void sum_columns(float* dweight, float* dbias, const float* dy, const float* x, const float* mean, const float* rstd,
                 const Rows& r) {
  const auto kernel = kernels::kernels().normalization->layer_norm_columns;
  constexpr int64_t kColumns = 64;  // of one piece of work: whole cache lines of every row
  parallel((r.columns + kColumns - 1) / kColumns, kColumns * r.rows, [&](int64_t begin, int64_t end) {
    kernel(dweight, dbias, dy, x, mean, rstd, r.rows, r.columns, begin * kColumns, std::min(r.columns, end * kColumns));
  });
}

at::Tensor input_gradient(const at::Tensor& input, const float* dy, const float* mean, const float* rstd,
                          const kernels::LayerNorm& norm, const Rows& r) {
  at::Tensor result = empty_like_dense(input);
  float* dx = result.mutable_data_ptr<float>();
  const float* x = input.const_data_ptr<float>();
  const auto kernel = kernels::kernels().normalization->layer_norm_backward;
  parallel(r.rows, r.columns, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * r.columns;
    kernel(dx + at, dy + at, x + at, norm.centered ? mean + begin : nullptr, rstd + begin, norm, end - begin);
  });
  return result;
}

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;

// ---- Layer norm

bool are_parameters(const OptionalTensor& weight, const OptionalTensor& bias, c10::SymIntArrayRef shape,
                    c10::Device device, int64_t columns) {
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    if (!is_plain_float_or_absent(*parameter, device, columns)) return false;
    if (present(*parameter) && (*parameter)->sym_sizes() != shape) return false;
  }
  return true;
}

Tensors3 layer_norm(const Tensor& input, c10::SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                    const OptionalTensor& bias, double eps) {
  const Rows r = input.defined() ? rows_of(input, normalized_shape) : Rows{};
  if (r.rows < 0 || !are_parameters(weight, bias, normalized_shape, input.device(), r.columns)) {
    return general<at::_ops::native_layer_norm>(input, normalized_shape, weight, bias, eps);
  }
  const auto shape = moments_shape(input, normalized_shape.size());
  Tensor output = empty_like_dense(input), mean = empty_contiguous(shape, at::kFloat, input.device()),
         rstd = empty_contiguous(shape, at::kFloat, input.device());
  const kernels::LayerNorm norm{r.columns, data_or_null(weight), data_or_null(bias), eps};
  const float* x = input.const_data_ptr<float>();
  float *y = output.mutable_data_ptr<float>(), *m = mean.mutable_data_ptr<float>(), *s = rstd.mutable_data_ptr<float>();
  const auto kernel = kernels::kernels().normalization->layer_norm;
  parallel(r.rows, r.columns, [&](int64_t begin, int64_t end) {
    kernel(y + begin * r.columns, m + begin, s + begin, x + begin * r.columns, norm, end - begin);
  });
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Tensors3 layer_norm_backward(const Tensor& grad_out, const Tensor& input, c10::SymIntArrayRef normalized_shape,
                             const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
                             const OptionalTensor& bias, std::array<bool, 3> output_mask) {
  const Rows r = input.defined() ? rows_of(input, normalized_shape) : Rows{};
  if (r.rows < 0 || !are_parameters(weight, bias, normalized_shape, input.device(), r.columns) ||
      !is_plain_float(grad_out, input.device()) || grad_out.sizes() != input.sizes() ||
      !is_plain_float(mean, input.device()) || mean.numel() != r.rows || !is_plain_float(rstd, input.device()) ||
      rstd.numel() != r.rows || (output_mask[1] && !present(weight)) || (output_mask[2] && !present(bias))) {
    return general<at::_ops::native_layer_norm_backward>(grad_out, input, normalized_shape, mean, rstd, weight, bias,
                                                         output_mask);
  }
  const float *dy = grad_out.const_data_ptr<float>(), *x = input.const_data_ptr<float>(),
              *m = mean.const_data_ptr<float>(), *s = rstd.const_data_ptr<float>();
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) grad_input = input_gradient(input, dy, m, s, {r.columns, data_or_null(weight), nullptr, 0.0}, r);
  if (output_mask[1]) grad_weight = empty_like_dense(*weight);
  if (output_mask[2]) grad_bias = empty_like_dense(*bias);
  if (output_mask[1] || output_mask[2]) {
    sum_columns(output_mask[1] ? grad_weight.mutable_data_ptr<float>() : nullptr,
                output_mask[2] ? grad_bias.mutable_data_ptr<float>() : nullptr, dy, x, m, s, r);
  }
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
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
