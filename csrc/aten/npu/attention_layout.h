#pragma once
// From the arguments of an attention operator to samples: layouts, lengths and sparse modes.

#include <string_view>
#include <vector>

#include "aten/npu/attention_core.h"

namespace cann::aten::npu {

enum class AttentionLayout { kBSH, kSBH, kBSND, kBNSD, kTND };

// Raises RuntimeError naming the layouts there are.
AttentionLayout attention_layout(std::string_view name, const char* op);

// A view as (B, N, S, D); (1, N, T, D) for TND. `heads` splits H of BSH and SBH.
Tensor as_bnsd(const Tensor& t, AttentionLayout layout, int64_t heads);

// Sizes as numbers or symbols, in terms of the layout.
struct AttentionSizes {
  SymInt batch, heads, queries, head_size;  // of query; batch 1 and queries T for TND
  SymInt kv_heads, keys, value_size;        // of key and value
};
// Checks that the shapes of query, key and value fit one another.
AttentionSizes attention_sizes(const Tensor& query, const Tensor& key, const Tensor& value, SymInt heads,
                               AttentionLayout layout, const char* op);

struct SparsePattern {
  int64_t mode = 0;
  int64_t pre_tokens = 0;
  int64_t next_tokens = 0;
  at::OptionalIntArrayRef prefix;
};

// Cumulated lengths of the samples of TND; nullopt for other layouts.
struct SequenceLengths {
  at::OptionalIntArrayRef queries;
  at::OptionalIntArrayRef keys;
};

// A sample with the places of its results: batch entries, or rows of TND's packed dimension.
struct PlacedSample {
  AttentionSample sample;
  int64_t batch_begin = 0, batch_count = 0;  // other layouts
  int64_t row_begin = 0, key_begin = 0;      // TND
};

// Splits a call into samples of equal lengths, with bands and dropout positions set. Query, key and value are (B, N, S,
// D) views. `has_mask` says whether an attention mask was given, which some modes need and mode 0 depends on.
std::vector<PlacedSample> attention_samples(const Tensor& q, const Tensor& k, const Tensor& v, AttentionLayout layout,
                                            const SparsePattern& pattern, const SequenceLengths& lengths, bool has_mask,
                                            const char* op);

// The mask that applies element by element, as bool: none for the modes whose mask is a pattern. Checks type and sizes.
Tensor elementwise_mask(const OptionalTensor& mask, const SparsePattern& pattern, const AttentionSizes& sizes,
                        AttentionLayout layout, const char* op);

// Elements that dropout covers: B * N * Sq * Skv, or the sum over the samples of TND.
int64_t dropout_elements(const std::vector<PlacedSample>& samples);

}  // namespace cann::aten::npu
