#pragma once
// Layer, RMS (Zhang and Sennrich, arXiv:1910.07467) and batch normalisation, forward and backward. Arithmetic,
// parameters and moments are float32; rows of layer and RMS norm may be 16-bit elements, rounded once.
//
// Moments are of the differences from the mean (two passes over memory that the first leaves in the cache), sums are
// kept by several vectors: at least as accurate as one running float sum per lane.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// Rows of `columns` contiguous elements, one after the other. weight and bias [columns] may be nullptr.
struct LayerNorm {
  int64_t columns;
  const float* weight;
  const float* bias;
  double eps;
  // False for RMS norm: the mean is not subtracted, and pointers to means are neither read nor written.
  bool centered = true;
  // Whether y or dx is too large to be found in a cache by the next reader, and is stored past them.
  bool past_caches = false;
};

// y = (x - mean) rstd weight + bias for each row; stores mean and rstd = 1 / sqrt(variance + eps) of the rows.
using LayerNormKernel = void (*)(void* y, float* mean, float* rstd, const void* x, const LayerNorm& norm, int64_t rows);

// Where the gradients of a part of the rows go; what is nullptr is not computed. dweight = sum dy (x - mean) rstd and
// dbias = sum dy, [columns] each, are added to what is there.
struct LayerNormGradients {
  void* dx;
  float* dweight;
  float* dbias;
};

// Gradients of rows, from dy, x and what the forward pass stored.
using LayerNormBackwardKernel = void (*)(const LayerNormGradients& gradients, const void* dy, const void* x,
                                         const float* mean, const float* rstd, const LayerNorm& norm, int64_t rows);

// sum[i] = parts[i] + parts[stride + i] + ... for i < n, of `count` parts in their order.
using SumOfPartsKernel = void (*)(float* sum, const float* parts, int64_t count, int64_t stride, int64_t n);

// One channel of a batch: `planes` ranges of `size` elements, `stride` apart, as [N, C, H, W] has them.
struct Channel {
  int64_t planes;
  int64_t stride;
  int64_t size;
};

// Mean and biased variance of a channel.
using ChannelMomentsKernel = void (*)(const float* x, const Channel& channel, float& mean, float& variance);
// y = x scale + shift for a channel; y may be x.
using ChannelAffineKernel = void (*)(float* y, const float* x, const Channel& channel, float scale, float shift);
// sum dy and sum dy (x - mean).
using ChannelGradientSumsKernel = void (*)(const float* dy, const float* x, const Channel& channel, float mean,
                                           double& sum, double& product);
// dx = (dy - dy_mean - (x - mean) slope) scale for a channel; dx may be dy.
using ChannelBackwardKernel = void (*)(float* dx, const float* dy, const float* x, const Channel& channel, float mean,
                                       float dy_mean, float slope, float scale);

struct NormalizationKernels {
  LayerNormKernel layer_norm[kElements];
  LayerNormBackwardKernel layer_norm_backward[kElements];
  SumOfPartsKernel sum_of_parts;
  ChannelMomentsKernel channel_moments;
  ChannelAffineKernel channel_affine;
  ChannelGradientSumsKernel channel_gradient_sums;
  ChannelBackwardKernel channel_backward;
};

CANN_DECLARE_KERNELS(NormalizationKernels, normalization)

}  // namespace cann::kernels
