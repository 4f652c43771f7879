// ProcessGroupHCCL's collectives: each checks its tensors and says what the engine is to do with their memory.

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "distributed/process_group_hccl.h"
#include "distributed/process_group_request.h"

namespace cann::hccl {
namespace {

using c10d::OpType;

// Consecutive pieces of `whole`, piece i having pieces[i] rows of `row_bytes`.
std::vector<Span> cut(Span whole, const std::vector<int64_t>& pieces, size_t row_bytes) {
  std::vector<Span> result;
  size_t offset = 0;
  for (const int64_t rows : pieces) {
    const size_t bytes = static_cast<size_t>(rows) * row_bytes;
    result.push_back({whole.data + offset, bytes});
    offset += bytes;
  }
  return result;
}

// `splits` along dimension 0 of `tensor`, with an empty list written out as even ones; and the bytes of a row.
std::pair<std::vector<int64_t>, size_t> rows_of(std::vector<int64_t> splits, const at::Tensor& tensor, int ranks) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) splits.assign(static_cast<size_t>(ranks), rows / ranks);
  return {std::move(splits), rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows)};
}

std::vector<int64_t> even(int64_t elements, int ranks) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), elements / ranks);
}

// The one list that an operation on a single card has.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int ranks) {
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(ranks),
              "Tensor list must hold one tensor per rank: expected one list of ", ranks, ", but got ", lists.size(),
              lists.empty() ? c10::str(" lists.") : c10::str(" list(s), the first with ", lists[0].size(), "."),
              suffix(ErrCode::PARAM));
  return lists[0];
}

// As many outputs as inputs, all of one dtype on one card.
void check_pairs(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  TORCH_CHECK(outputs.size() == inputs.size(), "Expected as many outputs as inputs, but got ", outputs.size(), " and ",
              inputs.size(), ".", suffix(ErrCode::PARAM));
  check_list(inputs, /*same_size=*/false);
  check_list(outputs, /*same_size=*/false);
  check_matches(inputs[0], outputs[0]);
}

}  // namespace

Call ProcessGroupHCCL::reduction_call(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* function) const {
  Call call = call_for(tensor);
  call.reduction = checked_reduction(op, tensor.scalar_type(), function, &call.factor);
  return call;
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_single(tensors);
  check_root(opts.rootRank, size_, "root");
  return launch({OpType::BROADCAST, "hccl:broadcast", tensors, tensors, opts.timeout, opts.asyncOp,
                 call_for(tensors[0], opts.rootRank)},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.broadcast(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_single(tensors);
  return launch({OpType::ALLREDUCE, "hccl:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, tensors[0], "allreduce")},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.all_reduce(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allreduce_coalesced(Tensors& tensors,
                                                                const c10d::AllreduceCoalescedOptions& opts) {
  check_list(tensors, /*same_size=*/false);
  return launch({OpType::ALLREDUCE_COALESCED, "hccl:all_reduce_coalesced", tensors, tensors, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, tensors[0], "allreduce_coalesced")},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  for (const Span& span : memory.spans) engine.all_reduce(call, span);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_single(tensors);
  check_root(opts.rootRank, size_, "root");
  Call call = reduction_call(opts.reduceOp, tensors[0], "reduce");
  call.root = static_cast<int>(opts.rootRank);
  return launch({OpType::REDUCE, "hccl:reduce", tensors, tensors, opts.timeout, opts.asyncOp, call},
                [memory = HostMemory(tensors)](Engine& engine, const Call& call) {
                  engine.reduce(call, memory.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_single(inputs);
  const Tensors& list = only_list(outputs, size_);
  check_list(list, /*same_size=*/false);
  check_same_numel(inputs[0], {list[static_cast<size_t>(rank_)]});
  return launch({OpType::ALLGATHER, "hccl:all_gather", inputs, list, opts.timeout, opts.asyncOp, call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(list)](Engine& engine, const Call& call) {
                  engine.all_gather(call, in.spans[0], out.spans);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::AllgatherOptions& opts) {
  check_pairs(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_,
                "output tensor size must be equal to world_size times input tensor size, but got ", outputs[i].numel(),
                " and ", size_, " times ", inputs[i].numel(), ".", suffix(ErrCode::PARAM));
  }
  return launch({OpType::_ALLGATHER_BASE, "hccl:_all_gather_base", inputs, outputs, opts.timeout, opts.asyncOp,
                 call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(outputs), ranks = size_](Engine& engine, const Call& call) {
                  for (size_t i = 0; i < in.spans.size(); ++i) {
                    const auto bytes = static_cast<int64_t>(out.spans[i].bytes);
                    engine.all_gather(call, in.spans[i], cut(out.spans[i], even(bytes, ranks), 1));
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  check_list(inputs, /*same_size=*/false);
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "Tensor list must hold one list per rank: expected ", size_,
              ", but got ", outputs.size(), ".", suffix(ErrCode::PARAM));
  Tensors all;  // rank by rank
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(),
                "Every output list must have as many tensors as there are inputs: ", list.size(), " and ",
                inputs.size(), ".", suffix(ErrCode::PARAM));
    check_list(list, /*same_size=*/false);
    for (size_t i = 0; i < inputs.size(); ++i) check_same_numel(inputs[i], {list[i]});
    all.insert(all.end(), list.begin(), list.end());
  }
  return launch({OpType::ALLGATHER_COALESCED, "hccl:all_gather_coalesced", inputs, all, opts.timeout, opts.asyncOp,
                 call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(all), ranks = size_](Engine& engine, const Call& call) {
                  const size_t count = in.spans.size();
                  for (size_t i = 0; i < count; ++i) {
                    std::vector<Span> of_tensor;
                    for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
                      of_tensor.push_back(out.spans[rank * count + i]);
                    }
                    engine.all_gather(call, in.spans[i], of_tensor);
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  check_single(inputs);
  check_root(opts.rootRank, size_, "root");
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = only_list(outputs, size_);
    check_list(list, /*same_size=*/false);
    check_same_numel(inputs[0], list);
  } else {
    TORCH_CHECK(outputs.empty(), "gather: only the root takes outputs, but rank ", rank_, " gave some.",
                suffix(ErrCode::PARAM));
  }
  return launch(
      {OpType::GATHER, "hccl:gather", inputs, list, opts.timeout, opts.asyncOp, call_for(inputs[0], opts.rootRank)},
      [in = HostMemory(inputs), out = HostMemory(list)](Engine& engine, const Call& call) {
        engine.gather(call, in.spans[0], out.spans);
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  check_single(outputs);
  check_root(opts.rootRank, size_, "root");
  Tensors list;
  if (rank_ == opts.rootRank) {
    list = only_list(inputs, size_);
    check_list(list, /*same_size=*/false);
    check_same_numel(outputs[0], list);
  } else {
    TORCH_CHECK(inputs.empty(), "scatter: only the root takes inputs, but rank ", rank_, " gave some.",
                suffix(ErrCode::PARAM));
  }
  return launch(
      {OpType::SCATTER, "hccl:scatter", list, outputs, opts.timeout, opts.asyncOp, call_for(outputs[0], opts.rootRank)},
      [in = HostMemory(list), out = HostMemory(outputs)](Engine& engine, const Call& call) {
        engine.scatter(call, in.spans, out.spans[0]);
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  check_single(outputs);
  const Tensors& list = only_list(inputs, size_);
  check_list(list, /*same_size=*/false);
  check_same_numel(outputs[0], {list[static_cast<size_t>(rank_)]});
  return launch({OpType::REDUCE_SCATTER, "hccl:reduce_scatter", list, outputs, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, outputs[0], "reduce_scatter")},
                [in = HostMemory(list), out = HostMemory(outputs)](Engine& engine, const Call& call) {
                  engine.reduce_scatter(call, in.spans, out.spans[0]);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const c10d::ReduceScatterOptions& opts) {
  check_pairs(inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_,
                "input tensor must be the same size as output size times world size, but got ", inputs[i].numel(),
                " and ", outputs[i].numel(), " times ", size_, ".", suffix(ErrCode::PARAM));
  }
  return launch({OpType::_REDUCE_SCATTER_BASE, "hccl:_reduce_scatter_base", inputs, outputs, opts.timeout, opts.asyncOp,
                 reduction_call(opts.reduceOp, outputs[0], "_reduce_scatter_base")},
                [in = HostMemory(inputs), out = HostMemory(outputs), ranks = size_](Engine& engine, const Call& call) {
                  for (size_t i = 0; i < in.spans.size(); ++i) {
                    const auto bytes = static_cast<int64_t>(in.spans[i].bytes);
                    engine.reduce_scatter(call, cut(in.spans[i], even(bytes, ranks), 1), out.spans[i]);
                  }
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_splits,
                                                          std::vector<int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(output_splits, output, size_);
  check_splits(input_splits, input, size_);
  return launch(
      {OpType::ALLTOALL_BASE, "hccl:all_to_all", {input}, {output}, opts.timeout, opts.asyncOp, call_for(input)},
      [in = HostMemory({input}), out = HostMemory({output}), in_rows = rows_of(input_splits, input, size_),
       out_rows = rows_of(output_splits, output, size_)](Engine& engine, const Call& call) {
        engine.all_to_all(call, cut(in.spans[0], in_rows.first, in_rows.second),
                          cut(out.spans[0], out_rows.first, out_rows.second));
        return -1;
      });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  only_list({outputs}, size_);
  only_list({inputs}, size_);
  check_list(outputs, /*same_size=*/false);
  check_list(inputs, /*same_size=*/false);
  check_matches(inputs[0], outputs[0]);
  check_same_numel(inputs[static_cast<size_t>(rank_)], {outputs[static_cast<size_t>(rank_)]});
  return launch({OpType::ALLTOALL, "hccl:all_to_all", inputs, outputs, opts.timeout, opts.asyncOp, call_for(inputs[0])},
                [in = HostMemory(inputs), out = HostMemory(outputs)](Engine& engine, const Call& call) {
                  engine.all_to_all(call, in.spans, out.spans);
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::all_gather_into_tensor_uneven(at::Tensor& output, at::Tensor& input,
                                                                          std::vector<int64_t> output_splits,
                                                                          const c10d::AllgatherOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(output_splits, output, size_);
  const auto rows = rows_of(std::move(output_splits), output, size_);
  const size_t mine = static_cast<size_t>(rows.first[static_cast<size_t>(rank_)]) * rows.second;
  TORCH_CHECK(mine == input.nbytes(), "output tensor must have the same numel as input tensor: rank ", rank_,
              "'s part of the output has ", mine, " bytes, its input ", input.nbytes(), ".", suffix(ErrCode::PARAM));
  return launch({OpType::ALLGATHER,
                 "hccl:all_gather_into_tensor_uneven",
                 {input},
                 {output},
                 opts.timeout,
                 opts.asyncOp,
                 call_for(input)},
                [in = HostMemory({input}), out = HostMemory({output}), rows](Engine& engine, const Call& call) {
                  engine.all_gather(call, in.spans[0], cut(out.spans[0], rows.first, rows.second));
                  return -1;
                });
}

ProcessGroupHCCL::WorkPtr ProcessGroupHCCL::reduce_scatter_tensor_uneven(at::Tensor& output, at::Tensor& input,
                                                                         std::vector<int64_t> input_splits,
                                                                         const c10d::ReduceScatterOptions& opts) {
  check_tensor(output);
  check_tensor(input);
  check_matches(input, output);
  check_splits(input_splits, input, size_);
  const auto rows = rows_of(std::move(input_splits), input, size_);
  const size_t mine = static_cast<size_t>(rows.first[static_cast<size_t>(rank_)]) * rows.second;
  TORCH_CHECK(mine == output.nbytes(), "output tensor must have the same numel as input tensor: rank ", rank_,
              "'s part of the input has ", mine, " bytes, its output ", output.nbytes(), ".", suffix(ErrCode::PARAM));
  return launch({OpType::REDUCE_SCATTER,
                 "hccl:reduce_scatter_tensor_uneven",
                 {input},
                 {output},
                 opts.timeout,
                 opts.asyncOp,
                 reduction_call(opts.reduceOp, output, "reduce_scatter_tensor_uneven")},
                [in = HostMemory({input}), out = HostMemory({output}), rows](Engine& engine, const Call& call) {
                  engine.reduce_scatter(call, cut(in.spans[0], rows.first, rows.second), out.spans[0]);
                  return -1;
                });
}

}  // namespace cann::hccl
