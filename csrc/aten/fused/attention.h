#pragma once
// Attention without the (Sq, Skv) matrix, by the kernels of kernels/attention.h: packs operands, splits heads and
// blocks of queries among ATen's threads, unpacks results. Works on CPU tensors, which may be aliases of npu ones;
// temporaries are as large as float32 copies of the operands. Results do not depend on the number of threads.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>

#include "kernels/attention.h"

namespace cann::aten::fused {

// Views (B, N, Sq, D), (B, Nkv, Skv, D), (B, Nkv, Skv, Dv) of one type; N is a multiple of Nkv.
struct AttentionInputs {
  at::Tensor q{}, k{}, v{};
  double scale = 1;
  // As kernels::AttentionView.
  int64_t before = 0, after = 0;
  at::Tensor masked{};  // bool, (B or 1, N or 1, Sq or 1, Skv); undefined: none
  at::Tensor bias{};    // float32, likewise
  double bias_scale = 1;
};

// Whether the kernels take them: float32, bfloat16 or float16, no dimension empty, rows without gaps.
bool takes_attention(const AttentionInputs& inputs);

// Statistics (B, N, Sq) float32, of any strides. Either all of the log sums or maxima and sums are wanted.
struct AttentionStatistics {
  at::Tensor log_sum{};         // maximum + log(sum), +infinity for queries that see nothing
  at::Tensor maximum{}, sum{};  // (lowest float, 0) for such queries
};

// Writes `out`, a (B, N, Sq, Dv) view of the inputs' type with rows without gaps, and the defined statistics.
void attention_forward(const AttentionInputs& inputs, const at::Tensor& out, const AttentionStatistics& statistics);

// Writes dq, dk and dv, views as the inputs'. `out` and `d_out` as of the forward, which may have been that of a longer
// row of keys.
void attention_backward(const AttentionInputs& inputs, const at::Tensor& out, const at::Tensor& d_out,
                        const at::Tensor& log_sum, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

}  // namespace cann::aten::fused

namespace cann::aten {

// scaled_dot_product_attention's fused kernel ("aten", PrivateUse1); in scaled_dot_product.cpp.
void register_fused_attention(torch::Library& aten);

}  // namespace cann::aten
