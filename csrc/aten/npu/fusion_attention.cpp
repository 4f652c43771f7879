// npu_fusion_attention, its versions 2 and 3, and their gradients: three sets of arguments for one computation.
//
// Results: attention, maximum and sum of the softmax (float32, each value 8 times), an empty tensor in place of the
// probabilities, which are not kept, and the numbers that make the dropout mask again: seed, offset, elements.

#include "aten/npu/attention.h"
#include "aten/npu/families.h"
#include "aten/npu/host_values.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

using Lengths = at::OptionalIntArrayRef;
using Layout = std::string_view;

void check_no_padding_mask(const OptionalTensor& padding_mask, const char* op) {
  CANN_CHECK_SUPPORTED(!has(padding_mask), op, ": padding_mask is not supported, on hardware neither: use atten_mask");
}

// The generator's numbers when dropout needs them and the caller gave none.
DropoutKey dropout_key(const Tensor& query, double keep_prob, const OptionalTensor& dropout_mask, int64_t seed,
                       int64_t offset) {
  if (keep_prob >= 1) return {};
  if (has(dropout_mask) || seed != 0 || offset != 0) return {seed, offset};
  return take_dropout_key(query.device().index());
}

// ---- On CPU tensors: version 2's arguments, which are the union of all

std::tuple<Tensor, Tensor, Tensor, int64_t> forward_on_host(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num, Layout layout,
    const OptionalTensor& pse, const OptionalTensor& atten_mask, const OptionalTensor& query_rope,
    const OptionalTensor& key_rope, double scale, double keep_prob, int64_t pre_tokens, int64_t next_tokens,
    Lengths prefix, Lengths actual_q, Lengths actual_kv, int64_t sparse_mode, int64_t pse_type, Lengths q_start,
    Lengths kv_start, Layout softmax_layout, const OptionalTensor& sink, const OptionalTensor& dropout_mask,
    int64_t seed, int64_t offset) {
  const auto r = attention({.op = "npu_fusion_attention",
                            .query = query,
                            .key = key,
                            .value = value,
                            .heads = head_num,
                            .layout = layout,
                            .pse = pse,
                            .mask = atten_mask,
                            .query_rope = query_rope,
                            .key_rope = key_rope,
                            .sink = sink,
                            .dropout_mask = dropout_mask,
                            .scale = scale,
                            .keep_probability = keep_prob,
                            .pattern = {sparse_mode, pre_tokens, next_tokens, prefix},
                            .lengths = {actual_q, actual_kv},
                            .pse_type = pse_type,
                            .q_start = q_start,
                            .kv_start = kv_start,
                            .softmax_layout = softmax_layout,
                            .dropout = {seed, offset}});
  return {r.out, r.maximum, r.sum, r.elements};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Returns gradients of query, key, value, pse, query_rope, key_rope, sink.
Gradients backward_on_host(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy,
                           int64_t head_num, Layout layout, const OptionalTensor& pse, const OptionalTensor& atten_mask,
                           const OptionalTensor& softmax_max, const OptionalTensor& softmax_sum,
                           const OptionalTensor& attention_in, const OptionalTensor& query_rope,
                           const OptionalTensor& key_rope, double scale, double keep_prob, int64_t pre_tokens,
                           int64_t next_tokens, Lengths prefix, Lengths actual_q, Lengths actual_kv,
                           int64_t sparse_mode, int64_t pse_type, Lengths q_start, Lengths kv_start,
                           Layout softmax_layout, const OptionalTensor& sink, const OptionalTensor& dropout_mask,
                           int64_t seed, int64_t offset) {
  constexpr const char* kOp = "npu_fusion_attention_grad";
  CANN_CHECK_OP(has(softmax_max) && has(softmax_sum) && has(attention_in), kOp,
                ": softmax_max, softmax_sum and attention_in of the forward are needed");
  const auto r = attention_gradient({.op = kOp,
                                     .query = query,
                                     .key = key,
                                     .value = value,
                                     .heads = head_num,
                                     .layout = layout,
                                     .pse = pse,
                                     .mask = atten_mask,
                                     .query_rope = query_rope,
                                     .key_rope = key_rope,
                                     .sink = sink,
                                     .dropout_mask = dropout_mask,
                                     .scale = scale,
                                     .keep_probability = keep_prob,
                                     .pattern = {sparse_mode, pre_tokens, next_tokens, prefix},
                                     .lengths = {actual_q, actual_kv},
                                     .pse_type = pse_type,
                                     .q_start = q_start,
                                     .kv_start = kv_start,
                                     .softmax_layout = softmax_layout,
                                     .dropout = {seed, offset}},
                                    dy, *attention_in, *softmax_max, *softmax_sum);
  return {r.query, r.key, r.value, r.pse, r.query_rope, r.key_rope, r.sink};
}

using HostForward = Operator<"npu_fusion_attention", forward_on_host>;
using HostBackward = Operator<"npu_fusion_attention_grad", backward_on_host>;

// ---- Shapes

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t>;

std::tuple<Tensor, Tensor, Tensor, Tensor> forward_shapes(const Tensor& query, const Tensor& key, const Tensor& value,
                                                          int64_t head_num, Layout layout) {
  const auto shapes = attention_shapes(query, key, value, head_num, layout, "npu_fusion_attention");
  const auto type = statistics_type(query);
  return {empty_of(query, shapes.out), empty_of(query, shapes.statistics, type),
          empty_of(query, shapes.statistics, type), empty_of(query, {0})};
}

Tensor like_or_empty(const OptionalTensor& t, const Tensor& query) {
  return has(t) ? at::empty_like(*t, at::MemoryFormat::Contiguous) : empty_of(query, {0});
}
Tensor contiguous_like(const Tensor& t) { return at::empty_like(t, at::MemoryFormat::Contiguous); }

// ---- Version 1

Forward fusion_attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num, Layout layout,
                         const OptionalTensor& pse, const OptionalTensor& padding_mask,
                         const OptionalTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                         int64_t next_tockens, int64_t, Lengths prefix, Lengths actual_q, Lengths actual_kv,
                         int64_t sparse_mode, bool, bool, Layout softmax_layout, const OptionalTensor& sink,
                         const OptionalTensor& dropout_mask, int64_t seed, int64_t offset) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention");
  const DropoutKey drop = dropout_key(query, keep_prob, dropout_mask, seed, offset);
  auto [out, maximum, sum, elements] =
      HostForward::hosted(query, key, value, head_num, layout, pse, atten_mask, std::nullopt, std::nullopt, scale,
                          keep_prob, pre_tockens, next_tockens, prefix, actual_q, actual_kv, sparse_mode, 1,
                          std::nullopt, std::nullopt, softmax_layout, sink, dropout_mask, drop.seed, drop.offset);
  return {out, maximum, sum, at::empty({0}, query.options()), drop.seed, drop.offset, elements};
}

Forward fusion_attention_shape(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                               Layout layout, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                               double, double, int64_t, int64_t, int64_t, Lengths, Lengths, Lengths, int64_t, bool,
                               bool, Layout, const OptionalTensor&, const OptionalTensor&, int64_t seed,
                               int64_t offset) {
  auto [out, maximum, sum, none] = forward_shapes(query, key, value, head_num, layout);
  return {out, maximum, sum, none, seed, offset, 0};
}

using Grad1 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Grad1 fusion_attention_grad(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy,
                            int64_t head_num, Layout layout, const OptionalTensor& pse,
                            const OptionalTensor& padding_mask, const OptionalTensor& atten_mask,
                            const OptionalTensor& softmax_max, const OptionalTensor& softmax_sum, const OptionalTensor&,
                            const OptionalTensor& attention_in, double scale, double keep_prob, int64_t pre_tockens,
                            int64_t next_tockens, int64_t, int64_t seed, int64_t offset, int64_t, Lengths prefix,
                            Lengths actual_q, Lengths actual_kv, int64_t sparse_mode, bool, bool, Layout softmax_layout,
                            const OptionalTensor& sink) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention_grad");
  auto [dq, dk, dv, dpse, dqr, dkr, dsink] = HostBackward::hosted(
      query, key, value, dy, head_num, layout, pse, atten_mask, softmax_max, softmax_sum, attention_in, std::nullopt,
      std::nullopt, scale, keep_prob, pre_tockens, next_tockens, prefix, actual_q, actual_kv, sparse_mode, 1,
      std::nullopt, std::nullopt, softmax_layout, sink, std::nullopt, seed, offset);
  return {dq, dk, dv, dpse, dsink};
}

Grad1 fusion_attention_grad_shape(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor&, int64_t,
                                  Layout, const OptionalTensor& pse, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, double, double, int64_t, int64_t, int64_t, int64_t, int64_t,
                                  int64_t, Lengths, Lengths, Lengths, int64_t, bool, bool, Layout,
                                  const OptionalTensor& sink) {
  return {contiguous_like(query), contiguous_like(key), contiguous_like(value), like_or_empty(pse, query),
          like_or_empty(sink, query)};
}

OptionalTensor some(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

variable_list fusion_attention_derivative(Context<fusion_attention>& c) {
  const OptionalTensor pse = c.input<5>(), sink = c.input<20>(), dropout_mask = c.input<21>();
  const auto finish = [&](const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dpse,
                          const Tensor& dsink) -> variable_list {
    return {dq, dk, dv, has(pse) ? dpse : Tensor(), Tensor(), Tensor(), has(sink) ? dsink : Tensor(), Tensor()};
  };
  if (has(dropout_mask)) {  // the operator has no parameter for it
    auto [dq, dk, dv, dpse, dqr, dkr, dsink] = HostBackward::hosted(
        c.input<0>(), c.input<1>(), c.input<2>(), c.grad(0), c.input<3>(), c.input<4>(), pse, c.input<7>(),
        some(c.output<1>()), some(c.output<2>()), some(c.output<0>()), std::nullopt, std::nullopt, c.input<8>(),
        c.input<9>(), c.input<10>(), c.input<11>(), c.input<13>(), c.input<14>(), c.input<15>(), c.input<16>(), 1,
        std::nullopt, std::nullopt, c.input<19>(), sink, dropout_mask, c.output<4>(), c.output<5>());
    return finish(dq, dk, dv, dpse, dsink);
  }
  auto [dq, dk, dv, dpse, dsink] = Operator<"npu_fusion_attention_grad", fusion_attention_grad>::call(
      c.input<0>(), c.input<1>(), c.input<2>(), c.grad(0), c.input<3>(), c.input<4>(), pse, std::nullopt, c.input<7>(),
      some(c.output<1>()), some(c.output<2>()), std::nullopt, some(c.output<0>()), c.input<8>(), c.input<9>(),
      c.input<10>(), c.input<11>(), c.input<12>(), c.output<4>(), c.output<5>(), c.output<6>(), c.input<13>(),
      c.input<14>(), c.input<15>(), c.input<16>(), c.input<17>(), c.input<18>(), c.input<19>(), sink);
  return finish(dq, dk, dv, dpse, dsink);
}

// ---- Version 2: rotary parts and position slopes

Forward fusion_attention_v2(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                            Layout layout, const OptionalTensor& pse, const OptionalTensor& padding_mask,
                            const OptionalTensor& atten_mask, const OptionalTensor& query_rope,
                            const OptionalTensor& key_rope, double scale, double keep_prob, int64_t pre_tokens,
                            int64_t next_tokens, int64_t, Lengths prefix, Lengths actual_q, Lengths actual_kv,
                            int64_t sparse_mode, bool, bool, int64_t pse_type, Lengths q_start, Lengths kv_start,
                            Layout softmax_layout, const OptionalTensor& sink, const OptionalTensor& dropout_mask,
                            int64_t seed, int64_t offset) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention_v2");
  const DropoutKey drop = dropout_key(query, keep_prob, dropout_mask, seed, offset);
  auto [out, maximum, sum, elements] =
      HostForward::hosted(query, key, value, head_num, layout, pse, atten_mask, query_rope, key_rope, scale, keep_prob,
                          pre_tokens, next_tokens, prefix, actual_q, actual_kv, sparse_mode, pse_type, q_start,
                          kv_start, softmax_layout, sink, dropout_mask, drop.seed, drop.offset);
  return {out, maximum, sum, at::empty({0}, query.options()), drop.seed, drop.offset, elements};
}

Forward fusion_attention_v2_shape(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                                  Layout layout, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, double, double keep_prob, int64_t,
                                  int64_t, int64_t, Lengths, Lengths, Lengths, int64_t, bool, bool, int64_t, Lengths,
                                  Lengths, Layout, const OptionalTensor&, const OptionalTensor&, int64_t seed,
                                  int64_t offset) {
  CANN_CHECK_SUPPORTED(keep_prob >= 1 || seed != 0 || offset != 0,
                       "npu_fusion_attention_v2: dropout cannot be traced unless seed and offset are given, since the "
                       "graph would hold their numbers as constants");
  auto [out, maximum, sum, none] = forward_shapes(query, key, value, head_num, layout);
  return {out, maximum, sum, none, seed, offset, 0};
}

Gradients fusion_attention_grad_v2(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy,
                                   int64_t head_num, Layout layout, const OptionalTensor& pse,
                                   const OptionalTensor& padding_mask, const OptionalTensor& atten_mask,
                                   const OptionalTensor& softmax_max, const OptionalTensor& softmax_sum,
                                   const OptionalTensor&, const OptionalTensor& attention_in,
                                   const OptionalTensor& query_rope, const OptionalTensor& key_rope, double scale,
                                   double keep_prob, int64_t pre_tokens, int64_t next_tokens, int64_t, int64_t seed,
                                   int64_t offset, int64_t, Lengths prefix, Lengths actual_q, Lengths actual_kv,
                                   int64_t sparse_mode, bool, bool, int64_t pse_type, Lengths q_start, Lengths kv_start,
                                   Layout softmax_layout, const OptionalTensor& sink) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention_grad_v2");
  return HostBackward::hosted(query, key, value, dy, head_num, layout, pse, atten_mask, softmax_max, softmax_sum,
                              attention_in, query_rope, key_rope, scale, keep_prob, pre_tokens, next_tokens, prefix,
                              actual_q, actual_kv, sparse_mode, pse_type, q_start, kv_start, softmax_layout, sink,
                              std::nullopt, seed, offset);
}

Gradients fusion_attention_grad_v2_shape(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor&,
                                         int64_t, Layout, const OptionalTensor& pse, const OptionalTensor&,
                                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor& query_rope,
                                         const OptionalTensor& key_rope, double, double, int64_t, int64_t, int64_t,
                                         int64_t, int64_t, int64_t, Lengths, Lengths, Lengths, int64_t, bool, bool,
                                         int64_t pse_type, Lengths, Lengths, Layout, const OptionalTensor& sink) {
  return {contiguous_like(query),           contiguous_like(key),
          contiguous_like(value),           like_or_empty(pse_type < 2 ? pse : std::nullopt, query),
          like_or_empty(query_rope, query), like_or_empty(key_rope, query),
          like_or_empty(sink, query)};
}

variable_list fusion_attention_v2_derivative(Context<fusion_attention_v2>& c) {
  const OptionalTensor pse = c.input<5>(), query_rope = c.input<8>(), key_rope = c.input<9>(), sink = c.input<25>();
  const int64_t pse_type = c.input<21>();
  CANN_CHECK_SUPPORTED(!has(c.input<26>()),
                       "npu_fusion_attention_v2: the gradient with a given dropout_mask is not implemented");
  auto [dq, dk, dv, dpse, dqr, dkr, dsink] = Operator<"npu_fusion_attention_grad_v2", fusion_attention_grad_v2>::call(
      c.input<0>(), c.input<1>(), c.input<2>(), c.grad(0), c.input<3>(), c.input<4>(), pse, std::nullopt, c.input<7>(),
      some(c.output<1>()), some(c.output<2>()), std::nullopt, some(c.output<0>()), query_rope, key_rope, c.input<10>(),
      c.input<11>(), c.input<12>(), c.input<13>(), c.input<14>(), c.output<4>(), c.output<5>(), c.output<6>(),
      c.input<15>(), c.input<16>(), c.input<17>(), c.input<18>(), c.input<19>(), c.input<20>(), pse_type, c.input<22>(),
      c.input<23>(), c.input<24>(), sink);
  return {dq,
          dk,
          dv,
          has(pse) && pse_type < 2 ? dpse : Tensor(),
          Tensor(),
          Tensor(),
          has(query_rope) ? dqr : Tensor(),
          has(key_rope) ? dkr : Tensor(),
          has(sink) ? dsink : Tensor(),
          Tensor()};
}

// ---- Version 3: lengths, seed and offset are tensors

using Forward3 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

std::optional<std::vector<int64_t>> integers(const OptionalTensor& t) {
  return has(t) ? std::optional(integers_of(*t)) : std::nullopt;
}
Lengths view_of(const std::optional<std::vector<int64_t>>& values) {
  return values.has_value() ? Lengths(*values) : Lengths();
}
std::optional<std::vector<int64_t>> integers(at::OptionalSymIntArrayRef values) {
  if (!values.has_value()) return std::nullopt;
  std::vector<int64_t> list;
  for (const SymInt& v : *values) list.push_back(v.expect_int());
  return list;
}

Forward3 fusion_attention_v3(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                             Layout layout, const OptionalTensor& pse, const OptionalTensor& padding_mask,
                             const OptionalTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                             int64_t next_tockens, int64_t, at::OptionalSymIntArrayRef prefix,
                             const OptionalTensor& actual_q, const OptionalTensor& actual_kv, int64_t sparse_mode, bool,
                             bool, Layout softmax_layout, const OptionalTensor& sink) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention_v3");
  const DropoutKey drop = dropout_key(query, keep_prob, std::nullopt, 0, 0);
  const auto q_ends = integers(actual_q), kv_ends = integers(actual_kv), prefixes = integers(prefix);
  auto [out, maximum, sum, elements] = HostForward::hosted(
      query, key, value, head_num, layout, pse, atten_mask, std::nullopt, std::nullopt, scale, keep_prob, pre_tockens,
      next_tockens, view_of(prefixes), view_of(q_ends), view_of(kv_ends), sparse_mode, 1, std::nullopt, std::nullopt,
      softmax_layout, sink, std::nullopt, drop.seed, drop.offset);
  const auto number = [&](int64_t value) { return at::full({1}, value, query.options().dtype(at::kLong)); };
  return {out, maximum, sum, at::empty({0}, query.options()), number(drop.seed), number(drop.offset)};
}

Forward3 fusion_attention_v3_shape(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                                   Layout layout, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                   double, double, int64_t, int64_t, int64_t, at::OptionalSymIntArrayRef,
                                   const OptionalTensor&, const OptionalTensor&, int64_t, bool, bool, Layout,
                                   const OptionalTensor&) {
  auto [out, maximum, sum, none] = forward_shapes(query, key, value, head_num, layout);
  return {out, maximum, sum, none, empty_of(query, {1}, at::kLong), empty_of(query, {1}, at::kLong)};
}

Grad1 fusion_attention_grad_v3(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy,
                               int64_t head_num, Layout layout, const OptionalTensor& pse,
                               const OptionalTensor& padding_mask, const OptionalTensor& atten_mask,
                               const OptionalTensor& softmax_max, const OptionalTensor& softmax_sum,
                               const OptionalTensor&, const OptionalTensor& attention_in, double scale,
                               double keep_prob, int64_t pre_tockens, int64_t next_tockens, int64_t,
                               const OptionalTensor& seed, const OptionalTensor& offset,
                               at::OptionalSymIntArrayRef prefix, const OptionalTensor& actual_q,
                               const OptionalTensor& actual_kv, int64_t sparse_mode, bool, bool, Layout softmax_layout,
                               const OptionalTensor& sink) {
  check_no_padding_mask(padding_mask, "npu_fusion_attention_grad_v3");
  const auto q_ends = integers(actual_q), kv_ends = integers(actual_kv), prefixes = integers(prefix);
  const bool drops = keep_prob < 1;
  CANN_CHECK_OP(!drops || (has(seed) && has(offset)),
                "npu_fusion_attention_grad_v3: keep_prob below 1 needs seed and offset of the forward");
  auto [dq, dk, dv, dpse, dqr, dkr, dsink] = HostBackward::hosted(
      query, key, value, dy, head_num, layout, pse, atten_mask, softmax_max, softmax_sum, attention_in, std::nullopt,
      std::nullopt, scale, keep_prob, pre_tockens, next_tockens, view_of(prefixes), view_of(q_ends), view_of(kv_ends),
      sparse_mode, 1, std::nullopt, std::nullopt, softmax_layout, sink, std::nullopt,
      drops ? integers(seed)->front() : 0, drops ? integers(offset)->front() : 0);
  return {dq, dk, dv, dpse, dsink};
}

Grad1 fusion_attention_grad_v3_shape(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor&,
                                     int64_t, Layout, const OptionalTensor& pse, const OptionalTensor&,
                                     const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                     const OptionalTensor&, const OptionalTensor&, double, double, int64_t, int64_t,
                                     int64_t, const OptionalTensor&, const OptionalTensor&, at::OptionalSymIntArrayRef,
                                     const OptionalTensor&, const OptionalTensor&, int64_t, bool, bool, Layout,
                                     const OptionalTensor& sink) {
  return {contiguous_like(query), contiguous_like(key), contiguous_like(value), like_or_empty(pse, query),
          like_or_empty(sink, query)};
}

variable_list fusion_attention_v3_derivative(Context<fusion_attention_v3>& c) {
  const OptionalTensor pse = c.input<5>(), sink = c.input<20>();
  const std::optional<std::vector<int64_t>> none;
  auto [dq, dk, dv, dpse, dsink] = Operator<"npu_fusion_attention_grad_v3", fusion_attention_grad_v3>::call(
      c.input<0>(), c.input<1>(), c.input<2>(), c.grad(0), c.input<3>(), c.input<4>(), pse, std::nullopt, c.input<7>(),
      some(c.output<1>()), some(c.output<2>()), std::nullopt, some(c.output<0>()), c.input<8>(), c.input<9>(),
      c.input<10>(), c.input<11>(), c.input<12>(), some(c.output<4>()), some(c.output<5>()), c.input<13>(),
      c.input<14>(), c.input<15>(), c.input<16>(), c.input<17>(), c.input<18>(), c.input<19>(), sink);
  return {dq, dk, dv, has(pse) ? dpse : Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), has(sink) ? dsink : Tensor()};
}

// ---- Version 1 while tracing

using Differentiable1 =
    Differentiable<Operator<"npu_fusion_attention", fusion_attention>, fusion_attention, fusion_attention_derivative,
                   Saves<0, 1, 2, 5, 7, 20, 21>, Saves<0, 1, 2>, Saves<0>>;

// Seed and offset are numbers, which a traced graph would hold as constants and so make another mask in backward than
// in forward. Dropout is traced as version 3, whose seed and offset are tensors; the numbers returned are then zeros.
Forward fusion_attention_tracked(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                                 Layout layout, const OptionalTensor& pse, const OptionalTensor& padding_mask,
                                 const OptionalTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                                 int64_t next_tockens, int64_t inner_precise, Lengths prefix, Lengths actual_q,
                                 Lengths actual_kv, int64_t sparse_mode, bool parallel, bool sync,
                                 Layout softmax_layout, const OptionalTensor& sink, const OptionalTensor& dropout_mask,
                                 int64_t seed, int64_t offset) {
  const bool traced = query.key_set().has(c10::DispatchKey::Python);
  if (!traced || keep_prob >= 1 || has(dropout_mask) || seed != 0 || offset != 0) {
    return Differentiable1::call(query, key, value, head_num, layout, pse, padding_mask, atten_mask, scale, keep_prob,
                                 pre_tockens, next_tockens, inner_precise, prefix, actual_q, actual_kv, sparse_mode,
                                 parallel, sync, softmax_layout, sink, dropout_mask, seed, offset);
  }
  CANN_CHECK_SUPPORTED(!actual_q.has_value() && !actual_kv.has_value(),
                       "npu_fusion_attention: dropout with actual_seq_qlen cannot be traced; use "
                       "npu_fusion_attention_v3, which takes lengths as tensors");
  std::vector<SymInt> prefixes;
  if (prefix.has_value()) prefixes.assign(prefix->begin(), prefix->end());
  auto [out, maximum, sum, none, seed_tensor, offset_tensor] =
      Operator<"npu_fusion_attention_v3", fusion_attention_v3>::call(
          query, key, value, head_num, layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tockens,
          next_tockens, inner_precise,
          prefix.has_value() ? at::OptionalSymIntArrayRef(prefixes) : at::OptionalSymIntArrayRef(), std::nullopt,
          std::nullopt, sparse_mode, parallel, sync, softmax_layout, sink);
  return {out, maximum, sum, none, 0, 0, 0};
}

// ---- out= forms of version 3: a list of tensors that take the results

template <class... T, size_t... kIndex>
void copy_out(const std::tuple<T...>& results, TensorList out, std::index_sequence<kIndex...>, const char* op) {
  CANN_CHECK_OP(out.size() == sizeof...(T), op, ": out must be ", sizeof...(T), " tensors, but there are ", out.size());
  (
      [&](const Tensor& result, const Tensor& target) {
        if (!target.sizes().equals(result.sizes())) target.resize_(result.sizes());
        target.copy_(result);
      }(std::get<kIndex>(results), out[kIndex]),
      ...);
}

Forward3 fusion_attention_v3_out(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                                 Layout layout, const OptionalTensor& pse, const OptionalTensor& padding_mask,
                                 const OptionalTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                                 int64_t next_tockens, int64_t inner_precise, Lengths prefix,
                                 const OptionalTensor& actual_q, const OptionalTensor& actual_kv, int64_t sparse_mode,
                                 bool parallel, bool sync, Layout softmax_layout, const OptionalTensor& sink,
                                 const OptionalTensor&, TensorList out) {
  std::vector<SymInt> prefixes;
  if (prefix.has_value()) prefixes.assign(prefix->begin(), prefix->end());
  const auto results = fusion_attention_v3(
      query, key, value, head_num, layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tockens, next_tockens,
      inner_precise, prefix.has_value() ? at::OptionalSymIntArrayRef(prefixes) : at::OptionalSymIntArrayRef(), actual_q,
      actual_kv, sparse_mode, parallel, sync, softmax_layout, sink);
  copy_out(results, out, std::make_index_sequence<6>(), "npu_fusion_attention_v3.out");
  return {out[0], out[1], out[2], out[3], out[4], out[5]};
}

Forward3 fusion_attention_v3_out_shape(const Tensor&, const Tensor&, const Tensor&, int64_t, Layout,
                                       const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, double,
                                       double, int64_t, int64_t, int64_t, Lengths, const OptionalTensor&,
                                       const OptionalTensor&, int64_t, bool, bool, Layout, const OptionalTensor&,
                                       const OptionalTensor&, TensorList out) {
  return {out[0], out[1], out[2], out[3], out[4], out[5]};
}

Grad1 fusion_attention_grad_v3_out(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy,
                                   int64_t head_num, Layout layout, const OptionalTensor& pse,
                                   const OptionalTensor& padding_mask, const OptionalTensor& atten_mask,
                                   const OptionalTensor& softmax_max, const OptionalTensor& softmax_sum,
                                   const OptionalTensor& softmax_in, const OptionalTensor& attention_in, double scale,
                                   double keep_prob, int64_t pre_tockens, int64_t next_tockens, int64_t inner_precise,
                                   const OptionalTensor& seed, const OptionalTensor& offset, Lengths prefix,
                                   const OptionalTensor& actual_q, const OptionalTensor& actual_kv, int64_t sparse_mode,
                                   bool parallel, bool sync, Layout softmax_layout, const OptionalTensor& sink,
                                   const OptionalTensor&, TensorList out) {
  std::vector<SymInt> prefixes;
  if (prefix.has_value()) prefixes.assign(prefix->begin(), prefix->end());
  const auto results = fusion_attention_grad_v3(
      query, key, value, dy, head_num, layout, pse, padding_mask, atten_mask, softmax_max, softmax_sum, softmax_in,
      attention_in, scale, keep_prob, pre_tockens, next_tockens, inner_precise, seed, offset,
      prefix.has_value() ? at::OptionalSymIntArrayRef(prefixes) : at::OptionalSymIntArrayRef(), actual_q, actual_kv,
      sparse_mode, parallel, sync, softmax_layout, sink);
  copy_out(results, out, std::make_index_sequence<5>(), "npu_fusion_attention_grad_v3.out");
  return {out[0], out[1], out[2], out[3], out[4]};
}

Grad1 fusion_attention_grad_v3_out_shape(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, Layout,
                                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                         const OptionalTensor&, double, double, int64_t, int64_t, int64_t,
                                         const OptionalTensor&, const OptionalTensor&, Lengths, const OptionalTensor&,
                                         const OptionalTensor&, int64_t, bool, bool, Layout, const OptionalTensor&,
                                         const OptionalTensor&, TensorList out) {
  return {out[0], out[1], out[2], out[3], out[4]};
}

}  // namespace

void register_fusion_attention(Registry& ops) {
  ops.add_native<"npu_fusion_attention", fusion_attention, fusion_attention_shape>(
         "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, Tensor? "
         "padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, "
         "int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? "
         "actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str "
         "softmax_layout=\"\", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, int offset=0) -> (Tensor, "
         "Tensor, Tensor, Tensor, int, int, int)",
         Randomness::kDraws)
      .autograd_by<fusion_attention_tracked>()
      .autocast_lower();
  ops.add_native<"npu_fusion_attention_grad", fusion_attention_grad, fusion_attention_grad_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
      "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
      "Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., float keep_prob=1., int "
      "pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int seed=0, int offset=0, int "
      "numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, "
      "bool gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\", Tensor? sink=None) -> (Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
  ops.add_native<"npu_fusion_attention_v2", fusion_attention_v2, fusion_attention_v2_shape>(
         "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, Tensor? pse=None, Tensor? "
         "padding_mask=None, Tensor? atten_mask=None, Tensor? query_rope=None, Tensor? key_rope=None, float scale=1., "
         "float keep_prob=1., int pre_tokens=2147483647, int next_tokens=2147483647, int inner_precise=0, int[]? "
         "prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool "
         "gen_mask_parallel=True, bool sync=False, int pse_type=1, int[]? q_start_idx=None, int[]? kv_start_idx=None, "
         "str softmax_layout=\"\", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, int offset=0) -> "
         "(Tensor, Tensor, Tensor, Tensor, int, int, int)",
         Randomness::kDraws)
      .autograd<fusion_attention_v2_derivative, Saves<0, 1, 2, 5, 7, 8, 9, 25, 26>, Saves<0, 1, 2>>()
      .autocast_lower();
  ops.add_native<"npu_fusion_attention_grad_v2", fusion_attention_grad_v2, fusion_attention_grad_v2_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
      "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
      "Tensor? softmax_in=None, Tensor? attention_in=None, Tensor? query_rope=None, Tensor? key_rope=None, float "
      "scale_value=1., float keep_prob=1., int pre_tokens=2147483647, int next_tokens=2147483647, int "
      "inner_precise=0, int seed=0, int offset=0, int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, "
      "int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, int pse_type=1, "
      "int[]? q_start_idx=None, int[]? kv_start_idx=None, str softmax_layout=\"\", Tensor? sink=None) -> (Tensor, "
      "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  ops.add_native<"npu_fusion_attention_v3", fusion_attention_v3, fusion_attention_v3_shape>(
         "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, Tensor? "
         "padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, "
         "int next_tockens=2147483647, int inner_precise=0, SymInt[]? prefix=None, Tensor? actual_seq_qlen=None, "
         "Tensor? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str "
         "softmax_layout=\"\", Tensor? sink=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
         Randomness::kDraws)
      .autograd<fusion_attention_v3_derivative, Saves<0, 1, 2, 5, 7, 14, 15, 20>, Saves<0, 1, 2, 4, 5>>()
      .autocast_lower();
  ops.add_native<"npu_fusion_attention_v3.out", fusion_attention_v3_out, fusion_attention_v3_out_shape>(
      "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, Tensor? "
      "padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, int "
      "next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? "
      "actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str "
      "softmax_layout=\"\", Tensor? sink=None, Tensor? workspace=None, *, Tensor[] out) -> (Tensor, Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
  ops.add_native<"npu_fusion_attention_grad_v3", fusion_attention_grad_v3, fusion_attention_grad_v3_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
      "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
      "Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., float keep_prob=1., int "
      "pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, Tensor? seed=None, Tensor? "
      "offset=None, SymInt[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int "
      "sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\", Tensor? sink=None) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  ops.add_native<"npu_fusion_attention_grad_v3.out", fusion_attention_grad_v3_out, fusion_attention_grad_v3_out_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
      "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
      "Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., float keep_prob=1., int "
      "pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, Tensor? seed=None, Tensor? "
      "offset=None, int[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int "
      "sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\", Tensor? sink=None, "
      "Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace cann::aten::npu
