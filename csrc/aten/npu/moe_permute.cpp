// Mixture of experts: tokens sorted by expert and back.
//
// permute sorts the (token, choice) pairs by expert, stably; sorted_indices[token * topk + choice] is the row that the
// pair went to, so gathering by it undoes the sort. Pairs beyond the permuted rows were dropped and count as zeros.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

void check_not_padded(bool padded_mode, const char* op) {
  CANN_CHECK_SUPPORTED(!padded_mode, op, ": padded_mode is not supported, on hardware neither");
}

// ---- The arithmetic

// Rows of `permuted` for every pair, zeros for dropped ones. index (P) long.
Tensor rows_of_pairs(const Tensor& permuted, const Tensor& index) {
  const int64_t rows = permuted.size(0);
  if (rows == 0) return at::zeros({index.size(0), permuted.size(1)}, permuted.options());
  const Tensor dropped = index.ge(rows);
  Tensor gathered = permuted.index_select(0, index.clamp_max(rows - 1));
  return gathered.masked_fill_(dropped.unsqueeze(1), 0);
}

// Sums of `topk` pairs each: (tokens * topk, H) -> (tokens, H).
Tensor sum_choices(const Tensor& pairs, int64_t topk) {
  return topk == 1 ? pairs : pairs.view({-1, topk, pairs.size(1)}).sum(1);
}

// Rows for the permuted order from rows in pair order: the inverse of rows_of_pairs().
Tensor scatter_pairs(const Tensor& pairs, const Tensor& index, int64_t rows) {
  Tensor result = at::zeros({std::max(rows, index.size(0)), pairs.size(1)}, pairs.options());
  return result.index_copy_(0, index, pairs).narrow(0, 0, rows);
}

// ---- By indices

// How many of `pairs` are kept.
SymInt kept_rows(const SymInt& pairs, std::optional<int64_t> num_out_tokens) {
  const int64_t asked = num_out_tokens.value_or(0);
  return asked > 0 ? pairs.min(SymInt(asked)) : pairs + asked;
}

void check_permute(const Tensor& tokens, const Tensor& indices, bool padded_mode) {
  constexpr const char* kOp = "npu_moe_token_permute";
  check_not_padded(padded_mode, kOp);
  CANN_CHECK_OP(
      tokens.dim() == 2 && (indices.dim() == 1 || indices.dim() == 2) && tokens.sym_size(0) == indices.sym_size(0), kOp,
      ": tokens must be (tokens, hidden) and indices (tokens) or (tokens, topk), but have ", tokens.sym_sizes(),
      " and ", indices.sym_sizes());
}

std::tuple<Tensor, Tensor> token_permute(const Tensor& tokens, const Tensor& indices, std::optional<int64_t> num_out,
                                         bool padded_mode) {
  check_permute(tokens, indices, padded_mode);
  const int64_t topk = indices.dim() == 1 ? 1 : indices.size(1);
  const Tensor order = at::argsort(indices.reshape(-1), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t rows = kept_rows(order.size(0), num_out).expect_int();
  CANN_CHECK_OP(rows >= 0, "npu_moe_token_permute: num_out_tokens ", *num_out, " leaves less than none of the ",
                order.size(0), " rows");
  Tensor permuted = tokens.index_select(0, order.narrow(0, 0, rows).div(topk, "floor"));
  Tensor sorted = at::empty({order.size(0)}, order.options().dtype(at::kInt));
  sorted.index_copy_(0, order, at::arange(order.size(0), sorted.options()));
  return {permuted, sorted};
}
std::tuple<Tensor, Tensor> token_permute_shape(const Tensor& tokens, const Tensor& indices,
                                               std::optional<int64_t> num_out, bool padded_mode) {
  check_permute(tokens, indices, padded_mode);
  const SymInt pairs = indices.sym_numel();
  return {empty_of(tokens, {kept_rows(pairs, num_out), tokens.sym_size(1)}), empty_of(tokens, {pairs}, at::kInt)};
}

Tensor token_permute_grad_v2(const Tensor& grad, const Tensor& sorted, SymInt tokens, at::ScalarType type, SymInt topk,
                             bool padded_mode) {
  check_not_padded(padded_mode, "npu_moe_token_permute_grad");
  return sum_choices(rows_of_pairs(wide(grad), sorted.to(at::kLong)), topk.expect_int()).to(type);
}
Tensor token_permute_grad_v2_shape(const Tensor& grad, const Tensor&, SymInt tokens, at::ScalarType type, SymInt,
                                   bool) {
  return empty_of(grad, {std::move(tokens), grad.sym_size(1)}, type);
}
Tensor token_permute_grad(const Tensor& tokens, const Tensor& grad, const Tensor& indices, const Tensor& sorted,
                          bool padded_mode) {
  return token_permute_grad_v2(grad, sorted, tokens.size(0), tokens.scalar_type(),
                               indices.dim() == 1 ? 1 : indices.size(1), padded_mode);
}
Tensor token_permute_grad_shape(const Tensor& tokens, const Tensor&, const Tensor&, const Tensor&, bool) {
  return at::empty_like(tokens);
}
variable_list token_permute_derivative(Context<token_permute>& c) {
  const Tensor tokens = c.input<0>(), indices = c.input<1>();
  return {Operator<"npu_moe_token_permute_grad_v2", token_permute_grad_v2>::call(
              c.grad(0), c.output<1>(), tokens.sym_size(0), tokens.scalar_type(),
              indices.dim() == 1 ? SymInt(1) : indices.sym_size(1), c.input<3>()),
          Tensor()};
}

int64_t choices(const OptionalTensor& probs) { return has(probs) ? probs->size(1) : 1; }

void check_unpermute(const Tensor& permuted, const Tensor& sorted, const OptionalTensor& probs, bool padded_mode) {
  constexpr const char* kOp = "npu_moe_token_unpermute";
  check_not_padded(padded_mode, kOp);
  CANN_CHECK_OP(permuted.dim() == 2 && sorted.dim() == 1 && (!has(probs) || probs->dim() == 2), kOp,
                ": permuted_tokens must be (rows, hidden), sorted_indices (pairs) and probs (tokens, topk), but have ",
                permuted.sym_sizes(), ", ", sorted.sym_sizes(), " and ",
                has(probs) ? probs->sym_sizes() : c10::SymIntArrayRef());
}

// Returns (tokens, what backward needs of permuted_tokens: they themselves when there are probs, else nothing).
std::tuple<Tensor, Tensor> token_unpermute(const Tensor& permuted, const Tensor& sorted, const OptionalTensor& probs,
                                           bool padded_mode, at::OptionalIntArrayRef) {
  check_unpermute(permuted, sorted, probs, padded_mode);
  Tensor pairs = rows_of_pairs(wide(permuted), sorted.to(at::kLong));
  if (has(probs)) pairs.mul_(probs->reshape({-1, 1}));
  return {sum_choices(pairs, choices(probs)).to(permuted.scalar_type()),
          has(probs) ? permuted.clone() : at::empty({0}, permuted.options())};
}
std::tuple<Tensor, Tensor> token_unpermute_shape(const Tensor& permuted, const Tensor& sorted,
                                                 const OptionalTensor& probs, bool padded_mode,
                                                 at::OptionalIntArrayRef) {
  check_unpermute(permuted, sorted, probs, padded_mode);
  const SymInt topk = has(probs) ? probs->sym_size(1) : SymInt(1);
  return {empty_of(permuted, {sorted.sym_size(0) / topk, permuted.sym_size(1)}),
          has(probs) ? at::empty_like(permuted) : empty_of(permuted, {0})};
}
Tensor token_unpermute_public(const Tensor& permuted, const Tensor& sorted, const OptionalTensor& probs,
                              bool padded_mode, at::OptionalIntArrayRef restore_shape) {
  return std::get<0>(
      Operator<"_npu_moe_token_unpermute", token_unpermute>::call(permuted, sorted, probs, padded_mode, restore_shape));
}

// `permuted` is only read when there are probs.
std::tuple<Tensor, Tensor> unpermute_gradients(const Tensor& grad, const Tensor& sorted, int64_t rows,
                                               at::ScalarType type, const OptionalTensor& probs,
                                               const OptionalTensor& permuted, bool padded_mode) {
  check_not_padded(padded_mode, "npu_moe_token_unpermute_grad");
  const Tensor index = sorted.to(at::kLong);
  const int64_t topk = choices(probs);
  Tensor pairs = wide(grad).repeat_interleave(topk, 0);
  Tensor d_probs;
  if (has(probs)) {
    CANN_CHECK_OP(has(permuted), "npu_moe_token_unpermute_grad: the gradient of probs needs permuted_tokens");
    d_probs = rows_of_pairs(wide(*permuted), index).mul_(pairs).sum(1).view(probs->sizes()).to(probs->scalar_type());
    pairs.mul_(probs->reshape({-1, 1}));
  }
  return {scatter_pairs(pairs, index, rows).to(type), d_probs};
}
std::tuple<Tensor, Tensor> token_unpermute_grad(const Tensor& permuted, const Tensor& grad, const Tensor& sorted,
                                                const OptionalTensor& probs, bool padded_mode,
                                                at::OptionalIntArrayRef) {
  return unpermute_gradients(grad, sorted, permuted.size(0), permuted.scalar_type(), probs, permuted, padded_mode);
}
Tensor like_probs(const OptionalTensor& probs) { return has(probs) ? at::empty_like(*probs) : Tensor(); }
std::tuple<Tensor, Tensor> token_unpermute_grad_shape(const Tensor& permuted, const Tensor&, const Tensor&,
                                                      const OptionalTensor& probs, bool, at::OptionalIntArrayRef) {
  return {at::empty_like(permuted), like_probs(probs)};
}
std::tuple<Tensor, Tensor> token_unpermute_grad_v2(const Tensor& grad, const Tensor& sorted, SymInt rows,
                                                   at::ScalarType type, const OptionalTensor& probs, bool padded_mode,
                                                   at::OptionalIntArrayRef, const OptionalTensor& permuted) {
  return unpermute_gradients(grad, sorted, rows.expect_int(), type, probs, permuted, padded_mode);
}
std::tuple<Tensor, Tensor> token_unpermute_grad_v2_shape(const Tensor& grad, const Tensor&, SymInt rows,
                                                         at::ScalarType type, const OptionalTensor& probs, bool,
                                                         at::OptionalIntArrayRef, const OptionalTensor&) {
  return {empty_of(grad, {std::move(rows), grad.sym_size(1)}, type), like_probs(probs)};
}
variable_list token_unpermute_derivative(Context<token_unpermute>& c) {
  const Tensor permuted = c.input<0>();
  const OptionalTensor probs = c.input<2>();
  auto [d_permuted, d_probs] = Operator<"npu_moe_token_unpermute_grad_v2", token_unpermute_grad_v2>::call(
      c.grad(0), c.input<1>(), permuted.sym_size(0), permuted.scalar_type(), probs, c.input<3>(), c.input<4>(),
      has(probs) ? OptionalTensor(permuted) : std::nullopt);
  return {d_permuted, Tensor(), d_probs};
}

// ---- By routing map (tokens, experts), true where a token goes to an expert

// With drop_and_pad, the first `capacity` tokens of each expert, its tokens before others; (experts * capacity).
Tensor padded_tokens(const Tensor& routing_map, int64_t capacity) {
  const Tensor by_expert = routing_map.to(at::kChar).t().contiguous();
  const Tensor order = std::get<1>(by_expert.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
  return order.narrow(1, 0, capacity).reshape(-1);
}
// Positions in probs^T, flattened, of the rows that padded_tokens() names.
Tensor padded_positions(const Tensor& tokens_of_rows, int64_t experts, int64_t tokens) {
  const Tensor expert = at::arange(experts, tokens_of_rows.options()).unsqueeze(1);
  return tokens_of_rows.view({experts, -1}).add(expert.mul(tokens)).reshape(-1);
}
// Without, the tokens of expert 0, then of expert 1, ...
Tensor packed_tokens(const Tensor& routing_map) {
  const Tensor tokens = at::arange(routing_map.size(0), routing_map.options().dtype(at::kLong));
  return tokens.unsqueeze(0).expand({routing_map.size(1), -1}).masked_select(routing_map.to(at::kBool).t());
}

using Permuted = std::tuple<Tensor, Tensor, Tensor>;

SymInt routed_rows(const Tensor& tokens, const Tensor& routing_map, std::optional<int64_t> num_out, bool pad) {
  const SymInt asked = num_out.has_value() ? SymInt(*num_out) : tokens.sym_size(0);
  const SymInt unit = routing_map.sym_size(pad ? 1 : 0);
  return unit == 0 ? SymInt(0) : asked / unit * unit;
}

// Returns (permuted tokens, their probs if given, sorted_indices): the rows' tokens with drop_and_pad, else the order
// that sorts the rows by token.
Permuted permute_by_map(const Tensor& tokens, const Tensor& routing_map, const OptionalTensor& probs,
                        std::optional<int64_t> num_out, bool pad) {
  constexpr const char* kOp = "npu_moe_token_permute_with_routing_map";
  CANN_CHECK_OP(tokens.dim() == 2 && routing_map.dim() == 2 && tokens.size(0) == routing_map.size(0), kOp,
                ": tokens must be (tokens, hidden) and routing_map (tokens, experts), but have ", tokens.sizes(),
                " and ", routing_map.sizes());
  const int64_t experts = routing_map.size(1), count = tokens.size(0);
  const int64_t rows = routed_rows(tokens, routing_map, num_out, pad).expect_int();
  Tensor row_tokens, permuted_probs, sorted;
  if (pad) {
    CANN_CHECK_OP(experts > 0, kOp, ": drop_and_pad needs experts, but routing_map has sizes ", routing_map.sizes());
    CANN_CHECK_OP(rows / experts <= count, kOp, ": a capacity of ", rows / experts, " is more than the ", count,
                  " tokens");
    row_tokens = padded_tokens(routing_map, rows / experts);
    sorted = row_tokens.to(at::kInt);
    if (has(probs)) {
      permuted_probs = probs->t().reshape(-1).index_select(0, padded_positions(row_tokens, experts, count));
    }
  } else {
    row_tokens = packed_tokens(routing_map);
    CANN_CHECK_OP(row_tokens.size(0) >= rows, kOp, ": num_out_tokens asks for ", rows, " rows, but routing_map has ",
                  row_tokens.size(0));
    row_tokens = row_tokens.narrow(0, 0, rows);
    sorted = at::argsort(row_tokens, /*stable=*/true, /*dim=*/0, /*descending=*/false).to(at::kInt);
    if (has(probs)) {
      permuted_probs = probs->t().masked_select(routing_map.to(at::kBool).t()).narrow(0, 0, rows).clone();
    }
  }
  return {tokens.index_select(0, row_tokens), permuted_probs, sorted};
}
Permuted permute_by_map_shape(const Tensor& tokens, const Tensor& routing_map, const OptionalTensor& probs,
                              std::optional<int64_t> num_out, bool pad) {
  const SymInt rows = routed_rows(tokens, routing_map, num_out, pad);
  return {empty_of(tokens, {rows, tokens.sym_size(1)}), has(probs) ? empty_of(*probs, {rows}) : Tensor(),
          empty_of(tokens, {rows}, at::kInt)};
}

std::tuple<Tensor, Tensor> permute_by_map_grad(const Tensor& grad, const OptionalTensor& probs_grad,
                                               const Tensor& sorted, const Tensor& routing_map, SymInt experts,
                                               SymInt tokens, bool pad) {
  const int64_t count = tokens.expect_int(), width = experts.expect_int();
  const Tensor row_tokens = pad ? sorted.to(at::kLong) : packed_tokens(routing_map).narrow(0, 0, grad.size(0));
  const Tensor wide_grad = wide(grad);
  Tensor d_tokens = at::zeros({count, grad.size(1)}, wide_grad.options()).index_add_(0, row_tokens, wide_grad);
  Tensor d_probs;
  if (has(probs_grad)) {
    Tensor by_expert = at::zeros({width, count}, probs_grad->options());
    if (pad) {
      by_expert.view(-1).index_add_(0, padded_positions(row_tokens, width, count), *probs_grad);
    } else {
      const Tensor places = routing_map.to(at::kBool).t().reshape(-1).nonzero().squeeze(1);
      by_expert.view(-1).index_copy_(0, places.narrow(0, 0, probs_grad->size(0)), *probs_grad);
    }
    d_probs = by_expert.t().contiguous();
  }
  return {d_tokens.to(grad.scalar_type()), d_probs};
}
std::tuple<Tensor, Tensor> permute_by_map_grad_shape(const Tensor& grad, const OptionalTensor& probs_grad,
                                                     const Tensor&, const Tensor&, SymInt experts, SymInt tokens,
                                                     bool) {
  return {empty_of(grad, {tokens, grad.sym_size(1)}),
          has(probs_grad) ? empty_of(*probs_grad, {tokens, std::move(experts)}) : Tensor()};
}
variable_list permute_by_map_derivative(Context<permute_by_map>& c) {
  const Tensor tokens = c.input<0>(), map = c.input<1>();
  const OptionalTensor probs = c.input<2>();
  Tensor grad = c.grad(0);
  if (!grad.defined()) {
    const Tensor sorted = c.output<2>();
    grad = at::zeros_symint({sorted.sym_size(0), tokens.sym_size(1)}, tokens.options());
  }
  const OptionalTensor probs_grad = has(probs) && c.grad(1).defined() ? OptionalTensor(c.grad(1)) : std::nullopt;
  auto [d_tokens, d_probs] = Operator<"npu_moe_token_permute_with_routing_map_grad", permute_by_map_grad>::call(
      grad, probs_grad, c.output<2>(), map, map.sym_size(1), map.sym_size(0), c.input<4>());
  return {d_tokens, Tensor(), d_probs};
}

using Unpermuted = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns (tokens, out_index, permuted_token_id, permuted probs): entry j adds row out_index[j] to token
// permuted_token_id[j].
Unpermuted unpermute_by_map(const Tensor& permuted, const Tensor& sorted, IntArrayRef restore_shape,
                            const OptionalTensor& probs, const OptionalTensor& routing_map, bool pad) {
  constexpr const char* kOp = "_npu_moe_token_unpermute_with_routing_map";
  CANN_CHECK_OP(restore_shape.size() == 2, kOp, ": restore_shape must be (tokens, hidden), but has ",
                restore_shape.size(), " numbers");
  const Tensor index = sorted.to(at::kLong);
  const Tensor rows = wide(permuted);
  Tensor tokens = at::zeros(restore_shape, rows.options());
  if (pad) {
    auto [token_id, out_index] = index.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    Tensor row_probs, weighted = rows;
    if (has(probs)) {
      row_probs = probs->t().reshape(-1).index_select(0, padded_positions(index, probs->size(1), probs->size(0)));
      weighted = rows.mul(row_probs.unsqueeze(1));
    }
    tokens.index_add_(0, token_id, weighted.index_select(0, out_index));
    return {tokens.to(permuted.scalar_type()), out_index.to(at::kInt), token_id.to(sorted.scalar_type()), row_probs};
  }
  CANN_CHECK_OP(has(routing_map), kOp, ": routing_map is needed unless drop_and_pad");
  CANN_CHECK_OP(routing_map->dim() == 2 && routing_map->size(0) == restore_shape[0], kOp,
                ": routing_map must be (tokens, experts) with the ", restore_shape[0],
                " tokens of restore_shape, but has sizes ", routing_map->sizes());
  const int64_t topk = restore_shape[0] == 0 ? 0 : permuted.size(0) / restore_shape[0];
  CANN_CHECK_OP(topk * restore_shape[0] == permuted.size(0), kOp, ": the ", permuted.size(0),
                " rows must be the same number for each of the ", restore_shape[0], " tokens");
  Tensor pair_probs, pairs = rows.index_select(0, index);
  if (has(probs)) {
    pair_probs = probs->masked_select(routing_map->to(at::kBool));
    pairs.mul_(pair_probs.unsqueeze(1));
  }
  const Tensor token_id = at::arange(index.size(0), sorted.options()).div(topk, "floor");
  return {sum_choices(pairs, topk).to(permuted.scalar_type()), sorted.to(at::kInt, false, /*copy=*/true), token_id,
          pair_probs};
}
Unpermuted unpermute_by_map_shape(const Tensor& permuted, const Tensor& sorted, IntArrayRef restore_shape,
                                  const OptionalTensor& probs, const OptionalTensor&, bool) {
  const SymInt rows = permuted.sym_size(0);
  return {empty_of(permuted, {restore_shape[0], restore_shape[1]}), empty_of(permuted, {rows}, at::kInt),
          empty_of(sorted, {rows}), has(probs) ? empty_of(*probs, {rows}) : Tensor()};
}
Tensor unpermute_by_map_public(const Tensor& permuted, const Tensor& sorted, IntArrayRef restore_shape,
                               const OptionalTensor& probs, const OptionalTensor& routing_map, bool pad) {
  return std::get<0>(Operator<"_npu_moe_token_unpermute_with_routing_map", unpermute_by_map>::call(
      permuted, sorted, restore_shape, probs, routing_map, pad));
}

std::tuple<Tensor, Tensor> unpermute_by_map_grad(const Tensor& grad, const Tensor& out_index, const Tensor& token_id,
                                                 const OptionalTensor& routing_map, const OptionalTensor& permuted,
                                                 const OptionalTensor& probs, bool pad, IntArrayRef) {
  constexpr const char* kOp = "npu_moe_token_unpermute_with_routing_map_grad";
  const Tensor index = out_index.to(at::kLong), tokens = token_id.to(at::kLong);
  Tensor entries = wide(grad).index_select(0, tokens);  // in the order of the entries j
  Tensor d_probs;
  if (has(probs)) {
    CANN_CHECK_OP(has(routing_map) || pad, kOp, ": routing_map is needed unless drop_and_pad");
    CANN_CHECK_OP(has(permuted), kOp, ": the gradient of probs needs permuted_tokens");
    const int64_t count = probs->size(0), experts = probs->size(1);
    // Where the probability of entry j is in probs, flattened.
    Tensor places;
    if (pad) {
      places = tokens.mul(experts).add(index.div(index.size(0) / experts, "floor"));
    } else {
      places = routing_map->to(at::kBool).reshape(-1).nonzero().squeeze(1);
    }
    const Tensor dots = entries.mul(wide(*permuted).index_select(0, index)).sum(1);
    Tensor flat = at::zeros({count * experts}, dots.options()).index_add_(0, places, dots);
    d_probs = flat.view({count, experts}).to(probs->scalar_type());
    entries.mul_(probs->reshape(-1).index_select(0, places).unsqueeze(1));
  }
  Tensor d_permuted = at::zeros_like(entries).index_copy_(0, index, entries);
  return {d_permuted.to(grad.scalar_type()), d_probs};
}
std::tuple<Tensor, Tensor> unpermute_by_map_grad_shape(const Tensor& grad, const Tensor& out_index, const Tensor&,
                                                       const OptionalTensor&, const OptionalTensor&,
                                                       const OptionalTensor& probs, bool, IntArrayRef) {
  return {empty_of(grad, {out_index.sym_size(0), grad.sym_size(1)}), like_probs(probs)};
}
variable_list unpermute_by_map_derivative(Context<unpermute_by_map>& c) {
  const OptionalTensor probs = c.input<3>();
  auto [d_permuted, d_probs] = Operator<"npu_moe_token_unpermute_with_routing_map_grad", unpermute_by_map_grad>::call(
      c.grad(0), c.output<1>(), c.output<2>(), c.input<4>(), has(probs) ? OptionalTensor(c.input<0>()) : std::nullopt,
      probs, c.input<5>(), c.input<2>());
  return {d_permuted, Tensor(), d_probs, Tensor()};
}

}  // namespace

void register_moe_permute(Registry& ops) {
  ops.add<"npu_moe_token_permute", token_permute, token_permute_shape>(
         "(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> (Tensor, Tensor)")
      .autograd<token_permute_derivative, Saves<0, 1>, Saves<1>>();
  ops.add<"npu_moe_token_permute_grad", token_permute_grad, token_permute_grad_shape>(
      "(Tensor tokens, Tensor grad_permuted_tokens, Tensor indices, Tensor sorted_indices, bool padded_mode=False) "
      "-> Tensor");
  ops.add<"npu_moe_token_permute_grad_v2", token_permute_grad_v2, token_permute_grad_v2_shape>(
      "(Tensor grad_permuted_tokens, Tensor sorted_indices, SymInt tokens_size_0, ScalarType tokens_dtype, SymInt "
      "num_topK, bool padded_mode=False) -> Tensor");
  ops.add<"_npu_moe_token_unpermute", token_unpermute, token_unpermute_shape>(
         "(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool padded_mode=False, int[]? "
         "restore_shape=None) -> (Tensor unpermuted_tokens, Tensor permuted_tokens_for_backward)")
      .autograd<token_unpermute_derivative, Saves<0, 1, 2>>();
  ops.add_composite<"npu_moe_token_unpermute", token_unpermute_public>(
      "(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool padded_mode=False, int[]? "
      "restore_shape=None) -> Tensor");
  ops.add<"npu_moe_token_unpermute_grad", token_unpermute_grad, token_unpermute_grad_shape>(
      "(Tensor permuted_tokens, Tensor grad_unpermuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool "
      "padded_mode=False, int[]? restore_shape=None) -> (Tensor, Tensor)");
  ops.add<"npu_moe_token_unpermute_grad_v2", token_unpermute_grad_v2, token_unpermute_grad_v2_shape>(
      "(Tensor grad_unpermuted_tokens, Tensor sorted_indices, SymInt permuted_tokens_size_0, ScalarType "
      "permuted_tokens_dtype, Tensor? probs=None, bool padded_mode=False, int[]? restore_shape=None, Tensor? "
      "permuted_tokens=None) -> (Tensor, Tensor)");

  ops.add<"npu_moe_token_permute_with_routing_map", permute_by_map, permute_by_map_shape>(
         "(Tensor tokens, Tensor routing_map, *, Tensor? probs=None, int? num_out_tokens=None, bool "
         "drop_and_pad=False) -> (Tensor, Tensor, Tensor)")
      .autograd<permute_by_map_derivative, Saves<0, 1, 2>, Saves<2>, Saves<0, 1>>();
  ops.add<"npu_moe_token_permute_with_routing_map_grad", permute_by_map_grad, permute_by_map_grad_shape>(
      "(Tensor permuted_token_out_grad, Tensor? probs_grad, Tensor sorted_indices, Tensor routing_map, SymInt "
      "experts_num, SymInt tokens_num, bool drop_and_pad) -> (Tensor, Tensor)");
  ops.add<"_npu_moe_token_unpermute_with_routing_map", unpermute_by_map, unpermute_by_map_shape>(
         "(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, Tensor? probs=None, Tensor? "
         "routing_map=None, bool drop_and_pad=False) -> (Tensor, Tensor, Tensor, Tensor)")
      .autograd<unpermute_by_map_derivative, Saves<0, 3, 4>, Saves<1, 2>>();
  ops.add_composite<"npu_moe_token_unpermute_with_routing_map", unpermute_by_map_public>(
      "(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, Tensor? probs=None, Tensor? "
      "routing_map=None, bool drop_and_pad=False) -> Tensor");
  ops.add<"npu_moe_token_unpermute_with_routing_map_grad", unpermute_by_map_grad, unpermute_by_map_grad_shape>(
      "(Tensor unpermuted_tokens_grad, Tensor out_index, Tensor permuted_token_id, Tensor? routing_map, Tensor? "
      "permuted_tokens, Tensor? probs, bool drop_and_pad, int[] restore_shape) -> (Tensor, Tensor)");
}

}  // namespace cann::aten::npu
