#pragma once
// The arithmetic of attention, forward and backward, by blocks of queries: the scores of one block against the keys it
// can see exist at a time, never the whole (Sq, Skv) matrix. Works on CPU tensors, on the calling thread and ATen's
// workers; sums run in a fixed order.
//
//   out = dropout(softmax(scores)) @ v,  scores = scale * q @ k^T (+ position bias), masked entries -inf
//
// A query that sees no key gives zeros; its statistics are (lowest float, 0).

#include "aten/npu/keep_mask.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {

// The keys that query i sees: i - before <= j <= i + after, or j < prefix.
struct Band {
  static constexpr int64_t kUnlimited = int64_t{1} << 40;
  int64_t before = kUnlimited;
  int64_t after = kUnlimited;
  int64_t prefix = 0;
};

// Batch entries of equal lengths, as views of the operator's arguments.
struct AttentionSample {
  Tensor q;  // (B, N, Sq, D)
  Tensor k;  // (B, Nkv, Skv, D), N a multiple of Nkv
  Tensor v;  // (B, Nkv, Skv, Dv)
  Band band;
  int64_t batch = 0;      // of the first entry: where masks and biases with a batch dimension start
  int64_t mask_base = 0;  // dropout element of (0, 0, 0, 0); elements are counted as in (B, N, Sq, Skv)
  int64_t q_start = 0;    // positions of the first query and key, for slopes
  int64_t kv_start = 0;
};

enum class Bias {
  kNone,
  kAfterScale,   // scale * q @ k^T + bias
  kBeforeScale,  // scale * (q @ k^T + bias)
  kSlope,        // scale * q @ k^T - slope * |i - j|
  kSlopeSqrt,    // scale * q @ k^T - slope * sqrt(|i - j|)
};

// What applies to all samples of one call.
struct AttentionTerms {
  double scale = 1;
  double keep_probability = 1;
  DropoutKey dropout;
  Tensor dropout_mask;  // packed bits instead of the key; undefined: use the key
  Tensor mask;          // bool, true: masked; (Sq, Skv) or (B or 1, N or 1, Sq, Skv); undefined: none
  Bias bias_kind = Bias::kNone;
  Tensor bias;  // (B or 1, N, Sq or 1, Skv), or slopes (N) or (B, N)
  Tensor sink;  // (N): one more score for each row, with a value of zero; undefined: none
};

// Writes out (B, N, Sq, Dv) and the statistics (B, N, Sq, 8), each value repeated 8 times: the maximum of a row's
// scores and the sum of exp(score - maximum). All are views that may have any strides.
void attention_forward(const AttentionSample& sample, const AttentionTerms& terms, const Tensor& out,
                       const Tensor& maximum, const Tensor& sum);

struct AttentionGradients {
  Tensor q, k, v;  // written; shaped as the sample's
  Tensor bias;     // added to; shaped as terms.bias, in the compute type; undefined: not wanted
  Tensor sink;     // added to; (N), in the compute type; undefined: not wanted
};
// `d_out`, `out`, `maximum` and `sum` as of the forward. The statistics and `out` may be those of a longer row that
// this call has only a part of the keys of (ring attention).
void attention_backward(const AttentionSample& sample, const AttentionTerms& terms, const Tensor& d_out,
                        const Tensor& out, const Tensor& maximum, const Tensor& sum, const AttentionGradients& grads);

// How many batch entries one sample should hold so that a block of a useful height fits the score budget.
int64_t batch_entries_per_sample(int64_t heads, int64_t keys);

}  // namespace cann::aten::npu
