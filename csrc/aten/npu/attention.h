#pragma once
// Attention operators' common ground: one forward and one backward with the parameters of all versions, on CPU tensors.

#include <string_view>

#include "aten/npu/attention_layout.h"

namespace cann::aten::npu {

// What versions of npu_fusion_attention have in common; each fills it from its own arguments.
struct AttentionCall {
  const char* op;
  Tensor query, key, value;
  int64_t heads;
  std::string_view layout;
  OptionalTensor pse, mask, query_rope, key_rope, sink, dropout_mask;
  double scale = 1, keep_probability = 1;
  SparsePattern pattern;
  SequenceLengths lengths;
  int64_t pse_type = 1;
  at::OptionalIntArrayRef q_start, kv_start;
  std::string_view softmax_layout;
  DropoutKey dropout;
};

struct AttentionResult {
  Tensor out, maximum, sum;
  int64_t elements;  // covered by dropout; 0 without
};
AttentionResult attention(const AttentionCall& call);

struct AttentionGradientResult {
  Tensor query, key, value, pse, query_rope, key_rope, sink;  // pse and sink empty when there was none
};
AttentionGradientResult attention_gradient(const AttentionCall& call, const Tensor& d_out, const Tensor& out,
                                           const Tensor& maximum, const Tensor& sum);

// Sizes of (out, maximum, sum).
struct AttentionShapes {
  c10::SymDimVector out, statistics;
};
AttentionShapes attention_shapes(const Tensor& query, const Tensor& key, const Tensor& value, const SymInt& heads,
                                 std::string_view layout, const char* op);

}  // namespace cann::aten::npu
