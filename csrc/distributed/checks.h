#pragma once
// What HCCL demands of tensors and reductions, checked before anything is sent. Stateless, any thread.
//
// Every refusal is a RuntimeError with torch_npu's message and error number (ERR02nnn), which scripts and their tests
// look for, followed by what was given.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

#include "distributed/engine.h"

namespace cann::hccl {

// 0 for a tensor in the usual order, else its c10::MemoryFormat. Ranks must agree, as elements are moved in memory
// order.
uint8_t layout_of(const at::Tensor& tensor);

// One npu tensor, dense, contiguous in its own memory format.
void check_tensor(const at::Tensor& tensor);
// Exactly one, as every non-coalesced operation takes.
void check_single(const std::vector<at::Tensor>& tensors);
// A non-empty list of such tensors of one dtype on one card; with `same_size` also of equal sizes.
void check_list(const std::vector<at::Tensor>& tensors, bool same_size);
// `other` has the dtype, the card and the memory format of `tensor`.
void check_matches(const at::Tensor& tensor, const at::Tensor& other);
// list[i] has as many elements as `tensor`, its dtype and its card.
void check_same_numel(const at::Tensor& tensor, const std::vector<at::Tensor>& list);
// Splits along dimension 0: empty (even) or `ranks` non-negative numbers that sum up to size(0).
void check_splits(const std::vector<int64_t>& splits, const at::Tensor& tensor, int ranks);
// `root` in [0, ranks).
void check_root(int64_t root, int ranks, const char* what);

// The reduction for `op` on `dtype`, with the factor of PREMUL_SUM in `factor`. `function` is c10d's name of the
// operation ("allreduce"), part of the message when HCCL cannot reduce the dtype. Bitwise reductions are refused.
Reduction checked_reduction(const c10d::ReduceOp& op, at::ScalarType dtype, const char* function, double* factor);

}  // namespace cann::hccl
