// Rows of float32 or 16-bit elements normalised: the passes of layer norm and RMS norm.
//
// Sums over rows are made in parts whose extent depends on the number of rows alone, and added up in the parts' order:
// results do not depend on the number of threads.

#include <algorithm>

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/float_values.h"
#include "aten/fused/normalization.h"
#include "aten/fused/past_caches.h"
#include "aten/fused/plain.h"
#include "aten/kernel_choice.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kGroup = 4;  // rows the backward kernel takes at once

// Rows of one part of a sum: long enough that parts are few beside the rows, short enough that there are several.
int64_t rows_of_part(int64_t rows) {
  const int64_t quarter = (rows / 4 + kGroup - 1) / kGroup * kGroup;
  return std::clamp<int64_t>(quarter, kGroup, 32);
}

int64_t parts_of(const Rows& r) { return (r.rows + rows_of_part(r.rows) - 1) / rows_of_part(r.rows); }

}  // namespace

c10::SmallVector<int64_t, 6> moments_shape(const Tensor& input, size_t dims) {
  c10::SmallVector<int64_t, 6> shape(input.sizes().begin(), input.sizes().end());
  std::fill(shape.end() - static_cast<int64_t>(dims), shape.end(), 1);
  return shape;
}

void normalize_rows(const RowNorm& of, void* y, float* mean, float* rstd, const void* x) {
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel = kernels::kernels().normalization->layer_norm[static_cast<int>(of.element)];
  const int64_t row_bytes = of.rows.columns * bytes_of(of.element);
  kernels::LayerNorm norm = of.norm;
  norm.past_caches = is_past_caches(of.rows.rows * row_bytes);
  parallel(of.rows.rows, of.rows.columns, [&](int64_t begin, int64_t end) {
    kernel(static_cast<char*>(y) + begin * row_bytes, norm.centered ? mean + begin : nullptr, rstd + begin,
           static_cast<const char*>(x) + begin * row_bytes, norm, end - begin);
  });
}

int64_t floats_of_partial_sums(const Rows& r, bool dweight, bool dbias) {
  return parts_of(r) * (dweight + dbias) * r.columns;
}

void normalize_rows_backward(const RowNorm& of, const kernels::LayerNormGradients& to, const void* dy, const void* x,
                             const float* mean, const float* rstd, float* partial_sums) {
  note_kernel_choice(KernelChoice::kOwn);
  const kernels::NormalizationKernels& kernel = *kernels::kernels().normalization;
  const auto backward = kernel.layer_norm_backward[static_cast<int>(of.element)];
  const bool weight = to.dweight != nullptr, bias = to.dbias != nullptr;
  const int64_t n = of.rows.columns, row_bytes = n * bytes_of(of.element), part_rows = rows_of_part(of.rows.rows),
                stride = (weight + bias) * n;
  kernels::LayerNorm norm = of.norm;
  norm.past_caches = is_past_caches(of.rows.rows * row_bytes);
  parallel(parts_of(of.rows), part_rows * n, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t row = part * part_rows, at = row * row_bytes;
      float* here = partial_sums + part * stride;
      std::fill(here, here + stride, 0.0f);
      backward({.dx = to.dx == nullptr ? nullptr : static_cast<char*>(to.dx) + at,
                .dweight = weight ? here : nullptr,
                .dbias = bias ? here + weight * n : nullptr},
               static_cast<const char*>(dy) + at, static_cast<const char*>(x) + at,
               norm.centered ? mean + row : nullptr, rstd + row, norm, std::min(part_rows, of.rows.rows - row));
    }
  });
  if (weight) kernel.sum_of_parts(to.dweight, partial_sums, parts_of(of.rows), stride, n);
  if (bias) kernel.sum_of_parts(to.dbias, partial_sums + weight * n, parts_of(of.rows), stride, n);
}

Rows rows_of(const Tensor& input, c10::SymIntArrayRef normalized_shape) {
  const auto shape = c10::asIntArrayRefSlowOpt(normalized_shape);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  if (!is_plain(input, input.device()) || !element_of(input.scalar_type()).has_value() || !shape.has_value() ||
      dims == 0 || dims > input.dim() || input.numel() < kOwnKernelElements ||
      input.sizes().slice(input.dim() - dims) != *shape) {
    return {};
  }
  Rows result;
  for (const int64_t size : *shape) result.columns *= size;
  result.rows = input.numel() / result.columns;
  return result;
}

bool are_parameters(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                    c10::SymIntArrayRef shape) {
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    if (!present(*parameter)) continue;
    const Tensor& t = **parameter;
    if (!is_plain(t, input.device()) || t.sym_sizes() != shape) return false;
    if (t.scalar_type() != input.scalar_type() && t.scalar_type() != at::kFloat) return false;
  }
  return !present(weight) || !present(bias) || weight->scalar_type() == bias->scalar_type();
}

std::tuple<Tensor, Tensor, Tensor> normalize(Norm kind, const Tensor& input, const Rows& r, size_t dims,
                                             const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  const bool centered = kind == Norm::kLayer;
  const auto shape = moments_shape(input, dims);
  Tensor output = empty_like_dense(input), rstd = empty_contiguous(shape, at::kFloat, input.device()), mean;
  if (centered) mean = empty_contiguous(shape, at::kFloat, input.device());
  const FloatValues w(weight), b(bias);
  normalize_rows({*element_of(input.scalar_type()), r, {r.columns, w.data(), b.data(), eps, centered}},
                 output.mutable_data_ptr(), centered ? mean.mutable_data_ptr<float>() : nullptr,
                 rstd.mutable_data_ptr<float>(), input.const_data_ptr());
  return {std::move(output), std::move(mean), std::move(rstd)};
}

std::tuple<Tensor, Tensor, Tensor> normalize_backward(Norm kind, const Tensor& grad_out, const Tensor& input,
                                                      const Rows& r, const OptionalTensor& mean, const Tensor& rstd,
                                                      const OptionalTensor& weight, const OptionalTensor& bias,
                                                      std::array<bool, 3> output_mask) {
  const auto [want_input, want_weight, want_bias] = output_mask;
  const FloatValues w(weight), m(mean), s(rstd);
  const auto floats = [&](c10::IntArrayRef sizes) { return empty_contiguous(sizes, at::kFloat, input.device()); };
  Tensor grad_input, grad_weight, grad_bias;
  if (want_input) grad_input = empty_like_dense(input);
  if (want_weight) grad_weight = floats(weight->sizes());
  if (want_bias) grad_bias = floats(bias->sizes());
  Tensor sums = floats({floats_of_partial_sums(r, want_weight, want_bias)});
  normalize_rows_backward(
      {*element_of(input.scalar_type()), r, {r.columns, w.data(), nullptr, 0.0, kind == Norm::kLayer}},
      {.dx = want_input ? grad_input.mutable_data_ptr() : nullptr,
       .dweight = want_weight ? grad_weight.mutable_data_ptr<float>() : nullptr,
       .dbias = want_bias ? grad_bias.mutable_data_ptr<float>() : nullptr},
      grad_out.const_data_ptr(), input.const_data_ptr(), m.data(), s.data(), sums.mutable_data_ptr<float>());
  const auto as_parameter = [](Tensor& grad, const OptionalTensor& parameter) {
    return grad.defined() ? rounded_to(std::move(grad), parameter->scalar_type()) : Tensor();
  };
  return {std::move(grad_input), as_parameter(grad_weight, weight), as_parameter(grad_bias, bias)};
}

}  // namespace cann::aten
