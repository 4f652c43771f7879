// Attention operators besides npu_fusion_attention: the whole multi-head layer, and joining the parts of ring
// attention.

#include <cmath>

#include "aten/npu/families.h"
#include "aten/npu/keep_mask.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

// ---- Ring attention: joins the results of attention over two sets of keys

// Statistics (..., 8) as one value for each row. For TND they lie sample after sample, each (N, S, 8), unless their
// layout is TND too: as (T, N).
Tensor ring_rows(const Tensor& statistics, const OptionalTensor& ends, std::string_view layout,
                 std::string_view softmax_layout) {
  if (layout != "TND" || softmax_layout == "TND") return statistics.select(-1, 0);
  CANN_CHECK_OP(has(ends),
                "npu_ring_attention_update: input_layout TND with statistics sample after sample needs "
                "actual_seq_qlen; or give input_softmax_layout='TND'");
  const int64_t heads = statistics.size(1);
  const Tensor flat = statistics.select(-1, 0).reshape(-1), bounds = ends->to(at::kCPU, at::kLong);
  std::vector<Tensor> samples;
  int64_t begin = 0;
  for (int64_t i = 0; i < bounds.numel(); ++i) {
    const int64_t end = bounds[i].item<int64_t>();
    samples.push_back(flat.narrow(0, begin * heads, (end - begin) * heads).view({heads, end - begin}).t());
    begin = end;
  }
  return at::cat(samples, 0);
}
// The inverse, each value 8 times.
Tensor ring_statistics(const Tensor& rows, const OptionalTensor& ends, std::string_view layout,
                       std::string_view softmax_layout) {
  Tensor ordered = rows;
  if (layout == "TND" && softmax_layout != "TND") {
    const Tensor bounds = ends->to(at::kCPU, at::kLong);
    std::vector<Tensor> samples;
    int64_t begin = 0;
    for (int64_t i = 0; i < bounds.numel(); ++i) {
      const int64_t end = bounds[i].item<int64_t>();
      samples.push_back(rows.narrow(0, begin, end - begin).t().reshape(-1));
      begin = end;
    }
    ordered = at::cat(samples).view(rows.sizes());
  }
  return ordered.unsqueeze(-1).expand({-1, -1, 8}).contiguous();
}

using Three = std::tuple<Tensor, Tensor, Tensor>;

Three ring_attention_update(const Tensor& prev_out, const Tensor& prev_max, const Tensor& prev_sum,
                            const Tensor& cur_out, const Tensor& cur_max, const Tensor& cur_sum,
                            const OptionalTensor& ends, std::string_view layout, std::string_view softmax_layout) {
  CANN_CHECK_OP(layout == "SBH" || layout == "TND",
                "npu_ring_attention_update: input_layout must be SBH or TND, but got '", layout, "'");
  const bool packed = layout == "TND";
  const auto rows = [&](const Tensor& t) { return ring_rows(t, ends, layout, softmax_layout); };
  const Tensor m1 = rows(prev_max), m2 = rows(cur_max);
  const Tensor maximum = at::maximum(m1, m2);
  const Tensor s1 = rows(prev_sum).mul(m1.sub(maximum).exp_()), s2 = rows(cur_sum).mul(m2.sub(maximum).exp_());
  const Tensor sum = s1.add(s2);
  // A row that has seen no key anywhere stays zero.
  const Tensor safe = sum.clamp_min(std::numeric_limits<float>::min());
  Tensor f1 = s1.div(safe), f2 = s2.div(safe);
  Tensor o1 = wide(prev_out), o2 = wide(cur_out);
  if (!packed) {  // (B, N, S) -> (S, B, N, 1), out as (S, B, N, D)
    f1 = f1.permute({2, 0, 1}), f2 = f2.permute({2, 0, 1});
    o1 = o1.unflatten(2, {f1.size(2), -1}), o2 = o2.unflatten(2, {f1.size(2), -1});
  }
  const Tensor out = o1.mul(f1.unsqueeze(-1)).add_(o2.mul(f2.unsqueeze(-1)));
  const auto statistics = [&](const Tensor& t) {
    if (packed) return ring_statistics(t, ends, layout, softmax_layout);
    return t.unsqueeze(-1).expand(prev_max.sizes()).contiguous();
  };
  return {out.reshape(prev_out.sizes()).to(prev_out.scalar_type()), statistics(maximum), statistics(sum)};
}
Three ring_attention_update_shape(const Tensor& prev_out, const Tensor& prev_max, const Tensor& prev_sum, const Tensor&,
                                  const Tensor&, const Tensor&, const OptionalTensor&, std::string_view,
                                  std::string_view) {
  return {at::empty_like(prev_out), at::empty_like(prev_max), at::empty_like(prev_sum)};
}

// ---- The multi-head attention layer of two-dimensional inputs (batch * length, hidden)

struct Heads {
  int64_t batch, count, size, queries, keys;
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

Heads heads_of(const Tensor& query, int64_t count, int64_t size, int64_t src_len, int64_t tgt_len) {
  constexpr const char* kOp = "npu_multi_head_attention";
  CANN_CHECK_OP(query.dim() == 2 && tgt_len > 0 && query.size(0) % tgt_len == 0, kOp,
                ": query must be (batch * tgt_len, hidden) with tgt_len ", tgt_len, ", but has sizes ", query.sizes());
  return {query.size(0) / tgt_len, count, size, tgt_len, src_len};
}

// (batch * length, heads * size) -> (batch, heads, length, size) and back
Tensor split_heads(const Tensor& x, const Heads& h, int64_t length) {
  return x.reshape({h.batch, length, h.count, h.size}).transpose(1, 2).contiguous();
}
Tensor join_heads(const Tensor& x, const Heads& h, int64_t length) {
  return x.transpose(1, 2).reshape({h.batch * length, h.count * h.size});
}

Tensor projected(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  const Tensor y = at::mm(wide(x), wide(weight).t());
  return has(bias) ? y.add_(*bias) : y;
}

using Eight = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Returns (out, packed dropout mask, q, k, v, probabilities, dropped probabilities, context).
Eight mha_on_host(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight,
                  const Tensor& key_weight, const Tensor& value_weight, const Tensor& attn_mask,
                  const Tensor& out_proj_weight, const OptionalTensor& query_bias, const OptionalTensor& key_bias,
                  const OptionalTensor& value_bias, const OptionalTensor& out_proj_bias,
                  const OptionalTensor& dropout_mask, int64_t head_num, int64_t dim_per_head, int64_t src_len,
                  int64_t tgt_len, double dropout_prob, bool softmax_use_float, int64_t seed, int64_t offset) {
  const Heads h = heads_of(query, head_num, dim_per_head, src_len, tgt_len);
  const auto type = query.scalar_type();
  const Tensor q = split_heads(projected(query, query_weight, query_bias).mul_(h.scale()), h, h.queries);
  const Tensor k = split_heads(projected(key, key_weight, key_bias), h, h.keys);
  const Tensor v = split_heads(projected(value, value_weight, value_bias), h, h.keys);
  const Tensor p = at::matmul(q, k.transpose(2, 3)).add(attn_mask).softmax(-1);
  Tensor mask = has(dropout_mask) && dropout_mask->numel() > 0
                    ? dropout_mask->clone()
                    : make_packed_mask(p.numel(), {seed, offset}, 1 - dropout_prob);
  const double rescale = dropout_prob < 1 ? 1 / (1 - dropout_prob) : 0;
  const Tensor kept = p.mul(unpack_mask(mask, p.sizes(), "npu_multi_head_attention")).mul_(rescale);
  const Tensor context = join_heads(at::matmul(kept, v), h, h.queries);
  const Tensor out = projected(context, out_proj_weight, out_proj_bias);
  return {out.to(type),  mask,
          q.to(type),    k.to(type),
          v.to(type),    p.to(softmax_use_float ? compute_type(type) : type),
          kept.to(type), context.to(type)};
}

Eight mha(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight,
          const Tensor& key_weight, const Tensor& value_weight, const Tensor& attn_mask, const Tensor& out_proj_weight,
          const OptionalTensor& query_bias, const OptionalTensor& key_bias, const OptionalTensor& value_bias,
          const OptionalTensor& out_proj_bias, const OptionalTensor& dropout_mask, int64_t head_num,
          int64_t dim_per_head, int64_t src_len, int64_t tgt_len, double dropout_prob, bool softmax_use_float) {
  const DropoutKey drop =
      dropout_prob > 0 && !has(dropout_mask) ? take_dropout_key(query.device().index()) : DropoutKey();
  return Operator<"npu_multi_head_attention", mha_on_host>::hosted(
      query, key, value, query_weight, key_weight, value_weight, attn_mask, out_proj_weight, query_bias, key_bias,
      value_bias, out_proj_bias, dropout_mask, head_num, dim_per_head, src_len, tgt_len, dropout_prob,
      softmax_use_float, drop.seed, drop.offset);
}

Eight mha_shape(const Tensor& query, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&, const Tensor& out_proj_weight, const OptionalTensor&, const OptionalTensor&,
                const OptionalTensor&, const OptionalTensor&, const OptionalTensor& dropout_mask, int64_t head_num,
                int64_t dim_per_head, int64_t src_len, int64_t tgt_len, double, bool softmax_use_float) {
  const SymInt batch = query.sym_size(0) / tgt_len, hidden = head_num * dim_per_head;
  const SymInt scores = batch * head_num * tgt_len * src_len;
  const auto heads = [&](int64_t length) { return empty_of(query, {batch, head_num, length, dim_per_head}); };
  const c10::SymDimVector score_sizes{batch, head_num, tgt_len, src_len};
  return {empty_of(query, {query.sym_size(0), out_proj_weight.sym_size(0)}),
          has(dropout_mask) ? at::empty_like(*dropout_mask) : empty_of(query, {packed_mask_bytes(scores)}, at::kByte),
          heads(tgt_len),
          heads(src_len),
          heads(src_len),
          empty_of(query, score_sizes, softmax_use_float ? compute_type(query) : query.scalar_type()),
          empty_of(query, score_sizes),
          empty_of(query, {query.sym_size(0), hidden})};
}

using Eleven = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Returns gradients of the four weights (query, key, value, out_proj), of query, key and value, and of the four biases.
Eleven mha_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight,
                    const Tensor& key_weight, const Tensor& value_weight, const Tensor& out_proj_weight,
                    const OptionalTensor& query_bias, const OptionalTensor& key_bias, const OptionalTensor& value_bias,
                    const OptionalTensor& out_proj_bias, const Tensor& query_res, const Tensor& key_res,
                    const Tensor& value_res, const Tensor& attn_scores, const Tensor& attn_res, const Tensor& context,
                    const Tensor& y_grad, const Tensor& dropout_mask, int64_t head_num, int64_t dim_per_head,
                    int64_t src_len, int64_t tgt_len, double dropout_prob, bool) {
  const Heads h = heads_of(query, head_num, dim_per_head, src_len, tgt_len);
  const auto type = query.scalar_type();
  const Tensor g = wide(y_grad), q = wide(query_res), k = wide(key_res), v = wide(value_res), p = wide(attn_scores);
  const Tensor d_context = split_heads(at::mm(g, wide(out_proj_weight)), h, h.queries);
  const double rescale = dropout_prob < 1 ? 1 / (1 - dropout_prob) : 0;
  const Tensor dp = at::matmul(d_context, v.transpose(2, 3))
                        .mul_(unpack_mask(dropout_mask, p.sizes(), "npu_multi_head_attention_backward"))
                        .mul_(rescale);
  const Tensor ds = p.mul(dp.sub(dp.mul(p).sum(-1, /*keepdim=*/true)));
  const Tensor dq = join_heads(at::matmul(ds, k), h, h.queries).mul_(h.scale());
  const Tensor dk = join_heads(at::matmul(ds.transpose(2, 3), q), h, h.keys);
  const Tensor dv = join_heads(at::matmul(wide(attn_res).transpose(2, 3), d_context), h, h.keys);
  const auto weight_grad = [&](const Tensor& d, const Tensor& x) { return at::mm(d.t(), wide(x)).to(type); };
  const auto bias_grad = [&](const Tensor& d, const OptionalTensor& bias) {
    return has(bias) ? d.sum(0).to(bias->scalar_type()) : at::empty({0}, query.options());
  };
  return {weight_grad(dq, query),
          weight_grad(dk, key),
          weight_grad(dv, value),
          weight_grad(g, context),
          at::mm(dq, wide(query_weight)).to(type),
          at::mm(dk, wide(key_weight)).to(type),
          at::mm(dv, wide(value_weight)).to(type),
          bias_grad(dq, query_bias),
          bias_grad(dk, key_bias),
          bias_grad(dv, value_bias),
          bias_grad(g, out_proj_bias)};
}
Eleven mha_backward_shape(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight,
                          const Tensor& key_weight, const Tensor& value_weight, const Tensor& out_proj_weight,
                          const OptionalTensor& query_bias, const OptionalTensor& key_bias,
                          const OptionalTensor& value_bias, const OptionalTensor& out_proj_bias, const Tensor&,
                          const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, int64_t, int64_t, int64_t, int64_t, double, bool) {
  const auto bias = [&](const OptionalTensor& b) { return has(b) ? at::empty_like(*b) : empty_of(query, {0}); };
  return {at::empty_like(query_weight),
          at::empty_like(key_weight),
          at::empty_like(value_weight),
          at::empty_like(out_proj_weight),
          at::empty_like(query),
          at::empty_like(key),
          at::empty_like(value),
          bias(query_bias),
          bias(key_bias),
          bias(value_bias),
          bias(out_proj_bias)};
}

variable_list mha_derivative(Context<mha>& c) {
  const OptionalTensor qb = c.input<8>(), kb = c.input<9>(), vb = c.input<10>(), ob = c.input<11>();
  auto [dqw, dkw, dvw, dow, dq, dk, dv, dqb, dkb, dvb, dob] =
      Operator<"npu_multi_head_attention_backward", mha_backward>::call(
          c.input<0>(), c.input<1>(), c.input<2>(), c.input<3>(), c.input<4>(), c.input<5>(), c.input<7>(), qb, kb, vb,
          ob, c.output<2>(), c.output<3>(), c.output<4>(), c.output<5>(), c.output<6>(), c.output<7>(), c.grad(0),
          c.output<1>(), c.input<13>(), c.input<14>(), c.input<15>(), c.input<16>(), c.input<17>(), c.input<18>());
  const auto wanted = [](const OptionalTensor& bias, const Tensor& grad) { return has(bias) ? grad : Tensor(); };
  return {
      dq,      dk, dv, dqw, dkw, dvw, Tensor(), dow, wanted(qb, dqb), wanted(kb, dkb), wanted(vb, dvb), wanted(ob, dob),
      Tensor()};
}

}  // namespace

void register_attention_parts(Registry& ops) {
  ops.add<"npu_ring_attention_update", ring_attention_update, ring_attention_update_shape>(
      "(Tensor prev_attn_out, Tensor prev_softmax_max, Tensor prev_softmax_sum, Tensor cur_attn_out, Tensor "
      "cur_softmax_max, Tensor cur_softmax_sum, *, Tensor? actual_seq_qlen=None, str input_layout=\"SBH\", str "
      "input_softmax_layout=\"\") -> (Tensor, Tensor, Tensor)");
  ops.add_native<"npu_multi_head_attention", mha, mha_shape>(
         "(Tensor query, Tensor key, Tensor value, Tensor query_weight, Tensor key_weight, Tensor value_weight, Tensor "
         "attn_mask, Tensor out_proj_weight, Tensor? query_bias, Tensor? key_bias, Tensor? value_bias, Tensor? "
         "out_proj_bias, Tensor? dropout_mask, int attn_head_num, int attn_dim_per_head, int src_len, int tgt_len, "
         "float dropout_prob, bool softmax_use_float) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
         "Tensor)",
         Randomness::kDraws)
      .autograd<mha_derivative, Saves<0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11>, Saves<1, 2, 3, 4, 5, 6, 7>>();
  ops.add<"npu_multi_head_attention_backward", mha_backward, mha_backward_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor query_weight, Tensor key_weight, Tensor value_weight, Tensor "
      "out_proj_weight, Tensor? query_bias, Tensor? key_bias, Tensor? value_bias, Tensor? out_proj_bias, Tensor "
      "query_res, Tensor key_res, Tensor value_res, Tensor attn_scores, Tensor attn_res, Tensor context, Tensor "
      "y_grad, Tensor dropout_mask, int attn_head_num, int attn_dim_per_head, int src_len, int tgt_len, float "
      "dropout_prob, bool softmax_use_float) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
      "Tensor, Tensor, Tensor)");
}

}  // namespace cann::aten::npu
