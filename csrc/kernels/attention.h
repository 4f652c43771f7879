#pragma once
// Attention of one head by blocks of 64 queries and 64 keys, forward and backward: scores exist for one block at a
// time.
//
//   out = softmax(scores) v,  scores = q k^T + bias, -infinity where a query may not see a key; q is scaled already
//
// The softmax is computed as keys come by, with a running maximum (Milakov and Gimelshein, arXiv:1805.02867), and the
// backward computes scores again (Dao et al., arXiv:2205.14135). Operands are float32 copies in the layouts below;
// packing them costs a pass over each, where the products make many.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

inline constexpr int64_t kAttentionBlock = 64;
// Columns of packed rows are a multiple of it, zero behind the tensor's own.
inline constexpr int64_t kAttentionColumns = 16;
// Packed rows that must exist, with any values, behind the last one: products are made for several rows at a time.
inline constexpr int64_t kAttentionSpareRows = 3;

// What a query may see, and what is added to its scores. Pointers are to the head's (query 0, key 0).
struct AttentionView {
  int64_t queries = 0, keys = 0;
  // Query i sees keys i - before <= j <= i + after; both may be negative, and as large as 2^60.
  int64_t before = 0, after = 0;
  const bool* masked = nullptr;  // [queries, keys], keys adjacent; true: not seen; nullptr: none
  int64_t masked_row = 0;        // elements from one query to the next
  const float* bias = nullptr;   // likewise; added after a multiplication by bias_scale
  int64_t bias_row = 0;
  float bias_scale = 1.0f;
};

// Packed operands of one head. Rows are [rows + spare, padded columns]; transposed ones [blocks, padded columns, 64],
// zero behind the last row.
struct AttentionOperands {
  int64_t size = 0, value_size = 0;  // padded columns of q and k, and of v
  const float* k_transposed = nullptr;
  const float* v = nullptr;
  // Of the backward only:
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v_transposed = nullptr;
  const float* d_out = nullptr;
};

// to[r * padded + c] = scale * from[r * stride + c].
using AttentionPackKernel = void (*)(float* to, const void* from, int64_t stride, int64_t rows, int64_t columns,
                                     int64_t padded, float scale);
// The transposed layout.
using AttentionTransposeKernel = void (*)(float* to, const void* from, int64_t stride, int64_t rows, int64_t columns,
                                          int64_t padded);
// The inverse of packing, of `columns` of rows of `padded`; row r is multiplied by scale[r * scale_step].
using AttentionUnpackKernel = void (*)(void* to, int64_t stride, const float* from, int64_t rows, int64_t columns,
                                       int64_t padded, const float* scale, int64_t scale_step);

// Queries [first, first + rows) of at most a block, `q` pointing to the packed first: the sums of e^(score - maximum)
// times values in `out` (packed rows), and of each row the maximum, or the lowest float for a row that sees nothing,
// and the sum, 0 for such a row.
using AttentionForwardKernel = void (*)(float* out, float* maximum, float* sum, const float* q,
                                        const AttentionOperands& operands, const AttentionView& view, int64_t first,
                                        int64_t rows);

// The whole head: adds to dq, dk and dv (packed rows); dq lacks the scale of q. `log_sum` is maximum + log(sum) of each
// query, +infinity for those that see nothing, `delta` the product of its out and d_out.
using AttentionBackwardKernel = void (*)(float* dq, float* dk, float* dv, const AttentionOperands& operands,
                                         const AttentionView& view, const float* log_sum, const float* delta);

struct AttentionKernels {
  AttentionPackKernel pack[kElements];
  AttentionTransposeKernel transpose[kElements];
  AttentionUnpackKernel unpack[kElements];
  AttentionForwardKernel forward;
  AttentionBackwardKernel backward;
};

CANN_DECLARE_KERNELS(AttentionKernels, attention)

}  // namespace cann::kernels
