// Mixture of experts: which experts a token goes to, and the routing operators of inference.

#include <limits>

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

using Three = std::tuple<Tensor, Tensor, Tensor>;

// The k largest along the last dimension; of equal values the first, as hardware's stable sort has it.
std::pair<Tensor, Tensor> stable_topk(const Tensor& x, int64_t k) {
  auto [values, indices] = x.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true);
  return {values.narrow(-1, 0, k), indices.narrow(-1, 0, k)};
}

void check_k(const Tensor& x, int64_t k, const char* op) {
  CANN_CHECK_OP(x.dim() >= 1 && k >= 1 && x.sym_size(-1) >= k, op, ": k must be from 1 to the number of experts, ",
                x.sym_size(-1), ", but is ", k);
}

// ---- Softmax over experts, then the k largest

// Position of choice j of row i is j * rows + i.
Tensor row_index(const Tensor& x, int64_t k) {
  const int64_t rows = x.numel() / x.size(-1);
  c10::DimVector sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = k;
  return at::arange(rows * k, x.options().dtype(at::kInt)).view({k, rows}).t().reshape(sizes);
}

// Rows that are finished go to the expert that does not exist, number `experts`.
Tensor expert_index(const Tensor& indices, const OptionalTensor& finished, int64_t experts) {
  Tensor index = indices.to(at::kInt, /*non_blocking=*/false, /*copy=*/true);
  if (has(finished)) index.masked_fill_(finished->to(at::kBool).view_as(index.select(-1, 0)).unsqueeze(-1), experts);
  return index;
}

Three gating_top_k_softmax(const Tensor& x, const OptionalTensor& finished, int64_t k) {
  check_k(x, k, "npu_moe_gating_top_k_softmax");
  const auto [values, indices] = stable_topk(wide(x).softmax(-1), k);
  return {values.to(x.scalar_type(), false, /*copy=*/true), expert_index(indices, finished, x.size(-1)),
          row_index(x, k)};
}
Three gating_shape(const Tensor& x, int64_t k) {
  c10::SymDimVector sizes = sizes_of(x);
  sizes.back() = k;
  return {empty_of(x, sizes), empty_of(x, sizes, at::kInt), empty_of(x, sizes, at::kInt)};
}
Three gating_top_k_softmax_shape(const Tensor& x, const OptionalTensor&, int64_t k) {
  check_k(x, k, "npu_moe_gating_top_k_softmax");
  return gating_shape(x, k);
}

// renorm 1: softmax over the k largest only. The third result is the whole softmax when asked for, else empty.
Three gating_top_k_softmax_v2(const Tensor& x, int64_t k, const OptionalTensor& finished, std::optional<int64_t> renorm,
                              std::optional<bool> output_softmax) {
  constexpr const char* kOp = "npu_moe_gating_top_k_softmax_v2";
  check_k(x, k, kOp);
  const int64_t normal = renorm.value_or(0);
  CANN_CHECK_OP(normal == 0 || normal == 1, kOp, ": renorm must be 0 or 1, but got ", normal);
  const Tensor scores = wide(x);
  const Tensor softmax = normal == 0 ? scores.softmax(-1) : Tensor();
  const auto [values, indices] = stable_topk(normal == 0 ? softmax : scores, k);
  const Tensor y = normal == 0 ? values : values.softmax(-1);
  const bool whole = normal == 0 && output_softmax.value_or(false);
  return {y.to(x.scalar_type(), false, /*copy=*/true), expert_index(indices, finished, x.size(-1)),
          whole ? softmax.to(at::kFloat) : at::empty({0}, x.options().dtype(at::kFloat))};
}
Three gating_top_k_softmax_v2_shape(const Tensor& x, int64_t k, const OptionalTensor&, std::optional<int64_t> renorm,
                                    std::optional<bool> output_softmax) {
  auto [y, index, unused] = gating_shape(x, k);
  const bool whole = renorm.value_or(0) == 0 && output_softmax.value_or(false);
  return {y, index, whole ? empty_of(x, x.sym_sizes(), at::kFloat) : empty_of(x, {0}, at::kFloat)};
}

// ---- Grouped gating: softmax or sigmoid, the best groups, the k best of them

Tensor expert_scores(const Tensor& x, int64_t norm_type) {
  CANN_CHECK_OP(norm_type == 0 || norm_type == 1,
                "npu_moe_gating_top_k: norm_type must be 0 (softmax) or 1 (sigmoid), but got ", norm_type);
  return norm_type == 0 ? wide(x).softmax(-1) : wide(x).sigmoid();
}

// Experts of groups that are not among the k_group best become -inf.
Tensor keep_best_groups(const Tensor& scores, int64_t k_group, int64_t group_count, int64_t select_mode) {
  const Tensor grouped = scores.view({scores.size(0), group_count, -1});
  const Tensor rank = select_mode == 0 ? grouped.amax(-1) : std::get<0>(grouped.topk(2, -1)).sum(-1);
  const Tensor best = stable_topk(rank, k_group).second;
  const Tensor dropped = at::ones_like(rank, at::kBool).scatter_(1, best, false);
  return grouped.masked_fill(dropped.unsqueeze(-1), -std::numeric_limits<double>::infinity()).view(scores.sizes());
}

void check_gating(const Tensor& x, int64_t k, const OptionalTensor& input_ids, const OptionalTensor& tid2eid,
                  int64_t k_group, int64_t group_count, int64_t select_mode, int64_t renorm) {
  constexpr const char* kOp = "npu_moe_gating_top_k";
  CANN_CHECK_OP(x.dim() == 2, kOp, ": x must be (tokens, experts), but has sizes ", x.sym_sizes());
  check_k(x, k, kOp);
  CANN_CHECK_SUPPORTED(!has(input_ids) && !has(tid2eid), kOp, ": input_ids and tid2eid are not implemented");
  CANN_CHECK_SUPPORTED(renorm == 0, kOp, ": renorm must be 0, as on hardware, but got ", renorm);
  CANN_CHECK_OP(group_count >= 1 && k_group >= 1 && k_group <= group_count && x.sym_size(1) % group_count == 0, kOp,
                ": the ", x.sym_size(1),
                " experts must divide into group_count groups, k_group of them chosen, but got ", group_count, " and ",
                k_group);
  CANN_CHECK_OP(select_mode == 0 || select_mode == 1, kOp,
                ": group_select_mode must be 0 (maximum) or 1 (sum of the "
                "two largest), but got ",
                select_mode);
}

// Returns (weights of the chosen experts, their numbers, scores of all experts).
Three gating_top_k(const Tensor& x, int64_t k, const OptionalTensor& bias, const OptionalTensor& input_ids,
                   const OptionalTensor& tid2eid, int64_t k_group, int64_t group_count, int64_t select_mode,
                   int64_t renorm, int64_t norm_type, bool, double scale, double eps) {
  check_gating(x, k, input_ids, tid2eid, k_group, group_count, select_mode, renorm);
  const Tensor scores = expert_scores(x, norm_type);
  Tensor ranked = has(bias) ? scores.add(wide(*bias)) : scores;
  if (group_count > 1) ranked = keep_best_groups(ranked, k_group, group_count, select_mode);
  const Tensor chosen = stable_topk(ranked, k).second;
  Tensor y = scores.gather(1, chosen);
  if (norm_type == 1) y = y.div(y.sum(-1, /*keepdim=*/true).add(eps));
  return {y.mul(scale).to(x.scalar_type()), chosen.to(at::kInt), scores.to(statistics_type(x), false, /*copy=*/true)};
}
Three gating_top_k_shape(const Tensor& x, int64_t k, const OptionalTensor&, const OptionalTensor& input_ids,
                         const OptionalTensor& tid2eid, int64_t k_group, int64_t group_count, int64_t select_mode,
                         int64_t renorm, int64_t, bool, double, double) {
  check_gating(x, k, input_ids, tid2eid, k_group, group_count, select_mode, renorm);
  auto [y, index, unused] = gating_shape(x, k);
  return {y, index, empty_of(x, x.sym_sizes(), statistics_type(x))};
}

// x_norm are the scores of all experts.
Tensor gating_top_k_backward(const Tensor& x_norm, const Tensor& grad_y, const Tensor& expert_idx, int64_t,
                             int64_t norm_type, double scale, double eps) {
  const Tensor s = wide(x_norm), index = expert_idx.to(at::kLong);
  Tensor g = wide(grad_y).mul(scale);
  if (norm_type == 1) {
    // y = s_k / (sum of the chosen + eps)
    const Tensor chosen = s.gather(1, index);
    const Tensor total = chosen.sum(-1, /*keepdim=*/true).add_(eps);
    g = g.sub(g.mul(chosen).sum(-1, /*keepdim=*/true).div_(total)).div_(total);
  }
  Tensor d_scores = at::zeros_like(s).scatter_add_(1, index, g.to(s.scalar_type()));
  const Tensor dx = norm_type == 1 ? d_scores.mul(s).mul_(s.neg().add_(1))
                                   : s.mul(d_scores.sub(d_scores.mul(s).sum(-1, /*keepdim=*/true)));
  return dx.to(grad_y.scalar_type());
}
variable_list gating_top_k_derivative(Context<gating_top_k>& c) {
  return {Operator<"npu_moe_gating_top_k_backward", gating_top_k_backward>::call(
              c.output<2>(), c.grad(0), c.output<1>(), c.input<8>(), c.input<9>(), c.input<11>(), c.input<12>()),
          Tensor(), Tensor(), Tensor()};
}

// ---- Inference routing

// How many of the sorted expert numbers are at most i, for each expert i.
Tensor compute_expert_tokens(const Tensor& sorted_experts, int64_t experts) {
  const Tensor numbers = at::arange(experts, sorted_experts.options());
  return at::searchsorted(sorted_experts.contiguous(), numbers, /*out_int32=*/true, /*right=*/true);
}

// Returns (x of the sorted pairs, where each pair went, sorted experts).
Three init_routing(const Tensor& x, const Tensor& row_idx, const Tensor& expert_idx, int64_t active_num) {
  CANN_CHECK_OP(x.dim() == 2 && expert_idx.dim() == 2 && row_idx.sizes().equals(expert_idx.sizes()) &&
                    x.size(0) == expert_idx.size(0),
                "npu_moe_init_routing: x must be (tokens, hidden), row_idx and expert_idx (tokens, k), but have ",
                x.sizes(), ", ", row_idx.sizes(), " and ", expert_idx.sizes());
  const int64_t tokens = x.size(0), k = expert_idx.size(1);
  auto [sorted, order] = expert_idx.reshape(-1).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor source = row_idx.reshape(-1).to(at::kLong).index_select(0, order);
  Tensor went = at::empty({tokens * k}, row_idx.options());
  went.index_copy_(0, source, at::arange(tokens * k, row_idx.options()));
  const int64_t rows = std::min(active_num, tokens) * k;
  return {x.index_select(0, source.narrow(0, 0, rows).remainder(std::max<int64_t>(1, tokens))), went, sorted};
}
Three init_routing_shape(const Tensor& x, const Tensor& row_idx, const Tensor& expert_idx, int64_t active_num) {
  const SymInt pairs = expert_idx.sym_numel();
  const SymInt rows = x.sym_size(0).min(SymInt(active_num)) * expert_idx.sym_size(1);
  return {empty_of(x, {rows, x.sym_size(1)}), empty_of(row_idx, {pairs}), empty_of(expert_idx, {pairs})};
}

// out[i] = skip1[i] + skip2[i] + sum over k of scales[i, k] * (row(i, k) + bias[expert(i, k)])
Tensor finalize_routing(const Tensor& rows, const OptionalTensor& skip1, const OptionalTensor& skip2,
                        const OptionalTensor& bias, const OptionalTensor& scales, const Tensor& src_to_dst,
                        const OptionalTensor& expert_of_row, std::optional<int64_t> drop_pad_mode,
                        std::optional<int64_t> top_k) {
  constexpr const char* kOp = "npu_moe_finalize_routing";
  const int64_t mode = drop_pad_mode.value_or(0);
  CANN_CHECK_OP(mode >= 0 && mode <= 3, kOp, ": drop_pad_mode must be from 0 to 3, but got ", mode);
  const int64_t k = has(scales) ? scales->size(1) : top_k.value_or(1);
  const Tensor flat = wide(rows).reshape({-1, rows.size(-1)});
  CANN_CHECK_OP(k > 0 && src_to_dst.numel() % k == 0, kOp, ": expanded_src_to_dst_row must hold ", k,
                " rows for each token, but has ", src_to_dst.numel());
  const int64_t tokens = src_to_dst.numel() / k;
  // Modes 0 and 1 list choice 0 of all tokens first, modes 2 and 3 all choices of token 0.
  const Tensor table = src_to_dst.reshape(-1).to(at::kLong);
  const Tensor index = mode < 2 ? table.view({k, tokens}).t().reshape(-1) : table;
  Tensor picked = flat.index_select(0, index.clamp_min(0)).masked_fill_(index.lt(0).unsqueeze(1), 0);
  if (has(bias)) {
    CANN_CHECK_OP(has(expert_of_row), kOp, ": bias needs export_for_source_row, the expert of each row");
    picked.add_(wide(*bias).index_select(0, expert_of_row->reshape(-1).to(at::kLong)));
  }
  if (has(scales)) picked.mul_(wide(*scales).reshape({-1, 1}));
  Tensor out = picked.view({tokens, k, -1}).sum(1);
  for (const OptionalTensor* skip : {&skip1, &skip2}) {
    if (has(*skip)) out.add_(**skip);
  }
  return out.to(rows.scalar_type());
}
Tensor finalize_routing_shape(const Tensor& rows, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                              const OptionalTensor& scales, const Tensor& src_to_dst, const OptionalTensor&,
                              std::optional<int64_t>, std::optional<int64_t> top_k) {
  const SymInt k = has(scales) ? scales->sym_size(1) : SymInt(top_k.value_or(1));
  return empty_of(rows, {src_to_dst.sym_numel() / k, rows.sym_size(-1)});
}

// ---- From rank-major to expert-major order

using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// tokens lie by (rank, expert), expert_token_num_per_rank (ranks, experts) counts them; the result lies by (expert,
// rank). Returns (tokens, scales, the source of each row (idx_type 0) or its destination (1), tokens of each expert).
Four re_routing(const Tensor& tokens, const Tensor& counts, const OptionalTensor& scales, int64_t count_type,
                int64_t idx_type, std::optional<int64_t>) {
  constexpr const char* kOp = "npu_moe_re_routing";
  CANN_CHECK_OP(counts.dim() == 2, kOp, ": expert_token_num_per_rank must be (ranks, experts), but has sizes ",
                counts.sizes());
  CANN_CHECK_OP((count_type == 0 || count_type == 1) && (idx_type == 0 || idx_type == 1), kOp,
                ": expert_token_num_type and idx_type must be 0 or 1, but got ", count_type, " and ", idx_type);
  const int64_t ranks = counts.size(0), experts = counts.size(1);
  const Tensor flat = counts.reshape(-1).to(at::kLong);
  // The (rank, expert) cell of each token as expert * ranks + rank: a stable sort by it is the new order.
  const Tensor cells = at::arange(ranks * experts, flat.options());
  const Tensor key = cells.remainder(experts).mul(ranks).add(cells.div(experts, "floor"));
  const Tensor order = at::argsort(key.repeat_interleave(flat), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  CANN_CHECK_OP(order.size(0) <= tokens.size(0), kOp, ": the counts add up to ", order.size(0),
                " tokens, but there are ", tokens.size(0));
  // Rows that no count mentions stay where they are.
  const Tensor source = at::cat({order, at::arange(order.size(0), tokens.size(0), order.options())});
  Tensor index = source;
  if (idx_type == 1) {
    index = at::empty_like(source);
    index.index_copy_(0, source, at::arange(source.size(0), source.options()));
  }
  Tensor totals = counts.sum(0);
  if (count_type == 0) totals = totals.cumsum(0);
  return {
      tokens.index_select(0, source),
      has(scales) ? scales->index_select(0, source) : at::ones({tokens.size(0)}, tokens.options().dtype(at::kFloat)),
      index.to(at::kInt), totals.to(counts.scalar_type())};
}
Four re_routing_shape(const Tensor& tokens, const Tensor& counts, const OptionalTensor& scales, int64_t, int64_t,
                      std::optional<int64_t>) {
  return {at::empty_like(tokens),
          has(scales) ? at::empty_like(*scales) : empty_of(tokens, {tokens.sym_size(0)}, at::kFloat),
          empty_of(tokens, {tokens.sym_size(0)}, at::kInt), empty_of(counts, {counts.sym_size(1)})};
}

// ---- init_routing_v2: a range of experts, capacities, counts, and quantisation of the rows

struct RoutingV2 {
  int64_t first, last;  // experts of this card
  int64_t capacity;
  bool pads;  // every expert gets exactly `capacity` rows
};

RoutingV2 routing_v2(const Tensor& x, const Tensor& expert_idx, int64_t expert_capacity, int64_t expert_num,
                     int64_t drop_pad_mode, int64_t counts_type, int64_t quant_mode, IntArrayRef range) {
  constexpr const char* kOp = "npu_moe_init_routing_v2";
  CANN_CHECK_OP(x.dim() == 2 && expert_idx.dim() == 2 && x.sym_size(0) == expert_idx.sym_size(0), kOp,
                ": x must be (tokens, hidden) and expert_idx (tokens, k), but have ", x.sym_sizes(), " and ",
                expert_idx.sym_sizes());
  CANN_CHECK_OP(drop_pad_mode == 0 || drop_pad_mode == 1, kOp, ": drop_pad_mode must be 0 or 1, but got ",
                drop_pad_mode);
  CANN_CHECK_OP(counts_type >= 0 && counts_type <= 2, kOp, ": expert_tokens_num_type must be from 0 to 2, but got ",
                counts_type);
  CANN_CHECK_SUPPORTED(quant_mode == -1 || quant_mode == 0 || quant_mode == 1, kOp,
                       ": quant_mode must be -1 (none), 0 (static) or 1 (dynamic), but got ", quant_mode);
  RoutingV2 r{.first = 0, .last = expert_num, .capacity = expert_capacity, .pads = drop_pad_mode == 1};
  if (range.size() == 2 && range[1] > range[0]) r.first = range[0], r.last = range[1];
  CANN_CHECK_OP(r.last > r.first, kOp, ": needs expert_num or an active_expert_range that is not empty");
  CANN_CHECK_OP(!r.pads || expert_capacity > 0, kOp, ": drop_pad_mode 1 needs a positive expert_capacity, but got ",
                expert_capacity);
  return r;
}

// Rows of the result: those of this card's experts, or all pairs' worth of space, of which the first rows are used.
SymInt routing_rows(const RoutingV2& r, const SymInt& pairs, int64_t active_num, int64_t expert_num) {
  if (r.pads) return expert_num * r.capacity;
  return active_num > 0 ? pairs.min(SymInt(active_num)) : pairs;
}

Tensor quantized_rows(const Tensor& rows, const Tensor& expert_of_row, const OptionalTensor& scale,
                      const OptionalTensor& offset, int64_t quant_mode, Tensor& row_scale) {
  const Tensor x = rows.to(at::kFloat);
  const auto of_row = [&](const Tensor& table) {
    return table.size(0) == 1 ? table.reshape({1, -1})
                              : table.reshape({table.size(0), -1}).index_select(0, expert_of_row);
  };
  if (quant_mode == 0) {
    CANN_CHECK_OP(has(scale) && has(offset), "npu_moe_init_routing_v2: quant_mode 0 needs scale and offset");
    return x.mul(of_row(*scale)).add_(of_row(*offset)).round_().clamp_(-128, 127).to(at::kChar);
  }
  const Tensor smooth = has(scale) ? x.mul(of_row(*scale)) : x;
  row_scale = smooth.abs().amax(-1).div_(127);
  return smooth.div(row_scale.unsqueeze(1).clamp_min(std::numeric_limits<float>::min())).round_().to(at::kChar);
}

Four init_routing_v2(const Tensor& x, const Tensor& expert_idx, const OptionalTensor& scale,
                     const OptionalTensor& offset, int64_t active_num, int64_t expert_capacity, int64_t expert_num,
                     int64_t drop_pad_mode, int64_t counts_type, bool, int64_t quant_mode, IntArrayRef range,
                     int64_t row_idx_type, std::optional<int64_t>) {
  const RoutingV2 r =
      routing_v2(x, expert_idx, expert_capacity, expert_num, drop_pad_mode, counts_type, quant_mode, range);
  const int64_t pairs = expert_idx.numel(), k = expert_idx.size(1);
  const Tensor experts = expert_idx.reshape(-1).to(at::kLong);
  const Tensor mine = experts.ge(r.first).logical_and(experts.lt(r.last));
  // Pairs of other cards sort behind all of ours.
  const Tensor key = experts.masked_fill(mine.logical_not(), std::numeric_limits<int32_t>::max());
  auto [sorted, order] = key.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t active = mine.sum().item<int64_t>();
  const Tensor own_order = order.narrow(0, 0, active), own_experts = sorted.narrow(0, 0, active);
  const Tensor counts = at::bincount(own_experts.sub(r.first), {}, r.last - r.first);

  // Where row i of our sorted pairs goes, -1 for dropped ones.
  const int64_t rows = routing_rows(r, pairs, active_num, expert_num).expect_int();
  Tensor place = at::arange(active, order.options());
  if (r.pads) {
    const Tensor begin = counts.cumsum(0).sub(counts).index_select(0, own_experts.sub(r.first));
    const Tensor in_expert = place.sub(begin);
    place = own_experts.mul(r.capacity).add(in_expert).masked_fill_(in_expert.ge(r.capacity), -1);
  } else if (rows < active) {
    place = place.masked_fill(place.ge(rows), -1);
  }
  const Tensor kept = place.ge(0).nonzero().squeeze(1);
  const Tensor target = place.index_select(0, kept), source = own_order.index_select(0, kept).div(k, "floor");
  Tensor row_scale;
  Tensor values = x.index_select(0, source);
  if (quant_mode >= 0) {
    values =
        quantized_rows(values, own_experts.index_select(0, kept).sub(r.first), scale, offset, quant_mode, row_scale);
  } else if (has(scale)) {
    row_scale = scale->reshape(-1).index_select(0, source).to(at::kFloat);
  }
  Tensor out = at::zeros({rows, x.size(1)}, values.options()).index_copy_(0, target, values);
  Tensor out_scale = at::zeros({rows}, x.options().dtype(at::kFloat));
  if (row_scale.defined()) out_scale.index_copy_(0, target, row_scale);

  Tensor row_index;
  if (row_idx_type == 1 && !r.pads) {
    row_index = order.to(at::kInt);
  } else {
    row_index = at::full({pairs}, -1, order.options().dtype(at::kInt));
    row_index.index_copy_(0, own_order.index_select(0, kept), target.to(at::kInt));
  }
  Tensor totals = counts;
  if (counts_type == 0 && !r.pads) totals = counts.cumsum(0);
  if (counts_type == 2) {
    // (expert, count) of experts that have any, the rest zeros
    const Tensor used = counts.nonzero().squeeze(1);
    totals = at::zeros({expert_num, 2}, counts.options());
    totals.narrow(0, 0, used.size(0)).copy_(at::stack({used.add(r.first), counts.index_select(0, used)}, 1));
  }
  return {out, row_index, totals, out_scale};
}
Four init_routing_v2_shape(const Tensor& x, const Tensor& expert_idx, const OptionalTensor&, const OptionalTensor&,
                           int64_t active_num, int64_t expert_capacity, int64_t expert_num, int64_t drop_pad_mode,
                           int64_t counts_type, bool, int64_t quant_mode, IntArrayRef range, int64_t,
                           std::optional<int64_t>) {
  const RoutingV2 r =
      routing_v2(x, expert_idx, expert_capacity, expert_num, drop_pad_mode, counts_type, quant_mode, range);
  const SymInt pairs = expert_idx.sym_numel(), rows = routing_rows(r, pairs, active_num, expert_num);
  const Tensor totals =
      counts_type == 2 ? empty_of(x, {expert_num, 2}, at::kLong) : empty_of(x, {r.last - r.first}, at::kLong);
  return {empty_of(x, {rows, x.sym_size(1)}, quant_mode >= 0 ? at::kChar : x.scalar_type()),
          empty_of(x, {pairs}, at::kInt), totals, empty_of(x, {rows}, at::kFloat)};
}

}  // namespace

void register_moe_routing(Registry& ops) {
  ops.add<"npu_moe_gating_top_k_softmax", gating_top_k_softmax, gating_top_k_softmax_shape>(
      "(Tensor x, Tensor? finished=None, int k=1) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_moe_gating_top_k_softmax_v2", gating_top_k_softmax_v2, gating_top_k_softmax_v2_shape>(
      "(Tensor x, *, int k=1, Tensor? finished=None, int? renorm=0, bool? output_softmax=False) -> (Tensor, Tensor, "
      "Tensor)");
  ops.add<"npu_moe_gating_top_k", gating_top_k, gating_top_k_shape>(
         "(Tensor x, int k, *, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, int k_group=1, int "
         "group_count=1, int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, float "
         "routed_scaling_factor=1.0, float eps=1e-20) -> (Tensor, Tensor, Tensor)")
      .autograd<gating_top_k_derivative, Saves<>, Saves<1, 2>>();
  ops.add<"npu_moe_gating_top_k_backward", gating_top_k_backward>(
      "(Tensor x_norm, Tensor grad_y, Tensor expertIdx, *, int renorm=0, int norm_type=0, float "
      "routed_scaling_factor=1.0, float eps=1e-20) -> Tensor");
  ops.add<"npu_moe_compute_expert_tokens", compute_expert_tokens>(
      "(Tensor sorted_expert_for_source_row, int num_expert) -> Tensor");
  ops.add<"npu_moe_init_routing", init_routing, init_routing_shape>(
      "(Tensor x, Tensor row_idx, Tensor expert_idx, int active_num) -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_moe_init_routing_v2", init_routing_v2, init_routing_v2_shape>(
      "(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, int active_num=-1, int "
      "expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, int expert_tokens_num_type=0, bool "
      "expert_tokens_num_flag=False, int quant_mode=-1, int[2] active_expert_range=[], int row_idx_type=0, int? "
      "x_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)");
  ops.add<"npu_moe_finalize_routing", finalize_routing, finalize_routing_shape>(
      "(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, Tensor? bias, Tensor? scales, Tensor "
      "expanded_src_to_dst_row, Tensor? export_for_source_row, int? drop_pad_mode=0, int? k=1) -> Tensor");
  ops.add<"npu_moe_re_routing", re_routing, re_routing_shape>(
      "(Tensor tokens, Tensor expert_token_num_per_rank, *, Tensor? per_token_scales=None, int "
      "expert_token_num_type=1, int idx_type=0, int? tokens_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace cann::aten::npu
