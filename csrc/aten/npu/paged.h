#pragma once
// Key-value caches of inference: blocks of rows, and a table that says which blocks a sequence has.

#include "aten/npu/support.h"

namespace cann::aten::npu {

// The first `length` rows of the sequence whose blocks are `table` (a row of the block table), from a cache (blocks,
// block_size, ...): (length, ...). Raises when the table names too few blocks.
inline Tensor paged_rows(const Tensor& cache, const Tensor& table, int64_t length, const char* op) {
  CANN_CHECK_OP(cache.size(1) > 0 && length >= 0, op, ": ", length, " rows of a paged cache with sizes ",
                cache.sizes());
  const int64_t block = cache.size(1), needed = (length + block - 1) / block;
  CANN_CHECK_OP(needed <= table.numel(), op, ": ", length, " rows need ", needed, " blocks of ", block,
                ", but block_table has ", table.numel(), " for the sequence");
  const Tensor index = table.narrow(0, 0, needed).to(at::kLong);
  return cache.index_select(0, index).flatten(0, 1).narrow(0, 0, length);
}

}  // namespace cann::aten::npu
