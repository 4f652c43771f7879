#include "aten/npu/attention.h"

namespace cann::aten::npu {
namespace {

// Query and key with their rotary parts appended, which add to the scores.
Tensor with_rope(const Tensor& t, const OptionalTensor& rope, AttentionLayout layout, int64_t heads) {
  const Tensor plain = as_bnsd(t, layout, heads);
  return has(rope) ? at::cat({plain, as_bnsd(*rope, layout, heads)}, -1) : plain;
}

Bias bias_kind(const AttentionCall& call) {
  if (!has(call.pse)) return Bias::kNone;
  switch (call.pse_type) {
    case 0:
      return Bias::kAfterScale;
    case 1:
      return Bias::kBeforeScale;
    case 2:
      return Bias::kSlope;
    case 3:
      return Bias::kSlopeSqrt;
    default:
      CANN_CHECK_OP(false, call.op, ": pse_type must be from 0 to 3, but got ", call.pse_type);
  }
}

void check_bias(const AttentionCall& call, const AttentionSizes& s, AttentionLayout layout) {
  if (!has(call.pse)) return;
  const Tensor& pse = *call.pse;
  if (call.pse_type >= 2) {
    CANN_CHECK_OP(pse.numel() % s.heads.expect_int() == 0 && pse.size(-1) == s.heads, call.op, ": pse of pse_type ",
                  call.pse_type, " must be the slopes, (N,) or (B, N), with N = ", s.heads, ", but has sizes ",
                  pse.sizes());
    return;
  }
  CANN_CHECK_OP(pse.dim() == 4 && pse.size(1) == s.heads, call.op,
                ": pse must be (B or 1, N, Sq or 1, Skv) with N = ", s.heads, ", but has sizes ", pse.sizes());
  if (layout == AttentionLayout::kTND) return;
  CANN_CHECK_SUPPORTED(pse.size(2) != 1024 || s.queries <= 1024, call.op,
                       ": a compressed pse (the last 1024 rows) is not implemented, give all rows");
  CANN_CHECK_OP((pse.size(0) == 1 || pse.size(0) == s.batch) && (pse.size(2) == 1 || pse.size(2) == s.queries) &&
                    pse.size(3) == s.keys,
                call.op, ": pse must be (", s.batch, " or 1, ", s.heads, ", ", s.queries, " or 1, ", s.keys,
                "), but has sizes ", pse.sizes());
}

// The arguments as samples and terms.
struct Prepared {
  AttentionLayout layout;
  AttentionSizes sizes;
  std::vector<PlacedSample> samples;
  AttentionTerms terms;
};

void set_positions(const AttentionCall& call, std::vector<PlacedSample>& samples) {
  const auto start = [](at::OptionalIntArrayRef starts, int64_t sample) -> int64_t {
    if (!starts.has_value() || starts->empty()) return 0;
    return (*starts)[starts->size() == 1 ? 0 : static_cast<size_t>(sample)];
  };
  for (const auto& starts : {call.q_start, call.kv_start}) {
    const size_t count = starts.has_value() ? starts->size() : 0;
    CANN_CHECK_OP(count <= 1 || (call.layout == "TND" && count == samples.size()), call.op,
                  ": q_start_idx and kv_start_idx must have one number, or with TND one for each of the samples, but "
                  "one has ",
                  count);
  }
  for (PlacedSample& s : samples) {
    s.sample.q_start = start(call.q_start, s.sample.batch);
    s.sample.kv_start = start(call.kv_start, s.sample.batch);
  }
}

Prepared prepare(const AttentionCall& call) {
  Prepared p;
  p.layout = attention_layout(call.layout, call.op);
  p.sizes = attention_sizes(call.query, call.key, call.value, call.heads, p.layout, call.op);
  CANN_CHECK_OP(call.key.scalar_type() == call.query.scalar_type() &&
                    call.value.scalar_type() == call.query.scalar_type() && call.query.is_floating_point(),
                call.op, ": query, key and value must be of one floating type, but are ", call.query.scalar_type(),
                ", ", call.key.scalar_type(), " and ", call.value.scalar_type());
  CANN_CHECK_OP(has(call.query_rope) == has(call.key_rope), call.op, ": query_rope and key_rope go together");
  CANN_CHECK_OP(call.keep_probability > 0 && call.keep_probability <= 1, call.op,
                ": keep_prob must be above 0 and at most 1, but got ", call.keep_probability);
  CANN_CHECK_OP(!has(call.sink) || call.sink->numel() == call.heads, call.op,
                ": sink must have one value for each of the ", call.heads, " heads, but has sizes ",
                value_or_undefined(call.sink).sizes());
  check_bias(call, p.sizes, p.layout);
  const int64_t kv_heads = p.sizes.kv_heads.expect_int();
  p.samples =
      attention_samples(with_rope(call.query, call.query_rope, p.layout, call.heads),
                        with_rope(call.key, call.key_rope, p.layout, kv_heads), as_bnsd(call.value, p.layout, kv_heads),
                        p.layout, call.pattern, call.lengths, has(call.mask), call.op);
  set_positions(call, p.samples);
  p.terms = {.scale = call.scale,
             .keep_probability = call.keep_probability,
             .dropout = call.dropout,
             .dropout_mask = has(call.dropout_mask) ? call.dropout_mask->contiguous() : Tensor(),
             .mask = elementwise_mask(call.mask, call.pattern, p.sizes, p.layout, call.op),
             .bias_kind = bias_kind(call),
             .bias = has(call.pse) ? wide(*call.pse) : Tensor(),
             .sink = value_or_undefined(call.sink)};
  return p;
}

// The part of a (B, N, S, D) view that belongs to a sample, by queries or by keys.
Tensor place(const Tensor& bnsd, const PlacedSample& s, AttentionLayout layout, bool keys) {
  if (layout != AttentionLayout::kTND) return bnsd.narrow(0, s.batch_begin, s.batch_count);
  return bnsd.narrow(2, keys ? s.key_begin : s.row_begin, keys ? s.sample.k.size(2) : s.sample.q.size(2));
}

// The statistics of a sample as (B, N, S, 8). For TND they are stored sample after sample, each (N, S, 8), unless
// softmax_layout is TND too.
Tensor place_statistics(const Tensor& all, const PlacedSample& s, const AttentionCall& call, AttentionLayout layout) {
  if (layout != AttentionLayout::kTND) return all.narrow(0, s.batch_begin, s.batch_count);
  const int64_t rows = s.sample.q.size(2);
  if (call.softmax_layout == "TND") return all.narrow(0, s.row_begin, rows).transpose(0, 1).unsqueeze(0);
  const int64_t width = all.size(1) * all.size(2);
  return all.reshape(-1).narrow(0, s.row_begin * width, rows * width).view({1, all.size(1), rows, all.size(2)});
}

// What a gradient is given of the forward: its results, and the gradient of the first.
void check_saved(const AttentionCall& call, const Tensor& d_out, const Tensor& out, const Tensor& maximum,
                 const Tensor& sum) {
  const auto shapes = attention_shapes(call.query, call.key, call.value, call.heads, call.layout, call.op);
  CANN_CHECK_OP(d_out.sym_sizes().equals(shapes.out) && out.sym_sizes().equals(shapes.out), call.op,
                ": dy and attention_in must have the sizes of the forward's result, ", c10::SymIntArrayRef(shapes.out),
                ", but have ", d_out.sizes(), " and ", out.sizes());
  CANN_CHECK_OP(maximum.sym_sizes().equals(shapes.statistics) && sum.sym_sizes().equals(shapes.statistics), call.op,
                ": softmax_max and softmax_sum must have the sizes of the forward's, ",
                c10::SymIntArrayRef(shapes.statistics), ", but have ", maximum.sizes(), " and ", sum.sizes());
}

}  // namespace

AttentionShapes attention_shapes(const Tensor& query, const Tensor& key, const Tensor& value, const SymInt& heads,
                                 std::string_view layout_name, const char* op) {
  const AttentionLayout layout = attention_layout(layout_name, op);
  const AttentionSizes s = attention_sizes(query, key, value, heads, layout, op);
  AttentionShapes shapes{.out = sizes_of(query), .statistics = {s.batch, s.heads, s.queries, 8}};
  const bool flat = layout == AttentionLayout::kBSH || layout == AttentionLayout::kSBH;
  shapes.out.back() = flat ? s.heads * s.value_size : s.value_size;
  if (layout == AttentionLayout::kTND) shapes.statistics = {s.queries, s.heads, 8};
  return shapes;
}

AttentionResult attention(const AttentionCall& call) {
  const Prepared p = prepare(call);
  const auto shapes = attention_shapes(call.query, call.key, call.value, call.heads, call.layout, call.op);
  const auto type = statistics_type(call.query);
  AttentionResult r{.out = empty_of(call.query, shapes.out),
                    .maximum = empty_of(call.query, shapes.statistics, type),
                    .sum = empty_of(call.query, shapes.statistics, type),
                    .elements = call.keep_probability < 1 ? dropout_elements(p.samples) : 0};
  // Rows of TND behind the last sample belong to nobody.
  if (p.layout == AttentionLayout::kTND) r.out.zero_(), r.maximum.zero_(), r.sum.zero_();
  const Tensor out = as_bnsd(r.out, p.layout, call.heads);
  for (const PlacedSample& s : p.samples) {
    attention_forward(s.sample, p.terms, place(out, s, p.layout, /*keys=*/false),
                      place_statistics(r.maximum, s, call, p.layout), place_statistics(r.sum, s, call, p.layout));
  }
  return r;
}

AttentionGradientResult attention_gradient(const AttentionCall& call, const Tensor& d_out, const Tensor& out,
                                           const Tensor& maximum, const Tensor& sum) {
  const Prepared p = prepare(call);
  check_saved(call, d_out, out, maximum, sum);
  const int64_t kv_heads = p.sizes.kv_heads.expect_int();
  const bool packed = p.layout == AttentionLayout::kTND;
  const auto made = [&](const Tensor& t) {
    return packed ? at::zeros_like(t, at::MemoryFormat::Contiguous) : at::empty_like(t, at::MemoryFormat::Contiguous);
  };
  AttentionGradientResult r;
  r.query = made(call.query), r.key = made(call.key), r.value = made(call.value);
  const Tensor none = at::empty({0}, call.query.options());
  const bool wants_bias = p.terms.bias_kind == Bias::kAfterScale || p.terms.bias_kind == Bias::kBeforeScale;
  const Tensor d_bias = wants_bias ? at::zeros_like(p.terms.bias) : Tensor();
  const Tensor d_sink = has(call.sink) ? at::zeros({call.heads}, compute_type(call.query)) : Tensor();
  const Tensor g = as_bnsd(d_out, p.layout, call.heads), o = as_bnsd(out, p.layout, call.heads);
  // With rotary parts, gradients of the joint tensors are split afterwards.
  const bool rope = has(call.query_rope);
  const Tensor dq = rope ? at::zeros_like(with_rope(call.query, call.query_rope, p.layout, call.heads))
                         : as_bnsd(r.query, p.layout, call.heads);
  const Tensor dk = rope ? at::zeros_like(with_rope(call.key, call.key_rope, p.layout, kv_heads))
                         : as_bnsd(r.key, p.layout, kv_heads);
  const Tensor dv = as_bnsd(r.value, p.layout, kv_heads);
  for (const PlacedSample& s : p.samples) {
    attention_backward(s.sample, p.terms, place(g, s, p.layout, false), place(o, s, p.layout, false),
                       place_statistics(maximum, s, call, p.layout), place_statistics(sum, s, call, p.layout),
                       {.q = place(dq, s, p.layout, false),
                        .k = place(dk, s, p.layout, true),
                        .v = place(dv, s, p.layout, true),
                        .bias = d_bias,
                        .sink = d_sink});
  }
  r.query_rope = r.key_rope = none;
  if (rope) {
    const auto split = [&](const Tensor& joint, const Tensor& plain, const Tensor& part, int64_t heads) {
      const Tensor turned = at::empty_like(part, at::MemoryFormat::Contiguous);
      const Tensor to_plain = as_bnsd(plain, p.layout, heads), to_part = as_bnsd(turned, p.layout, heads);
      to_plain.copy_(joint.narrow(-1, 0, to_plain.size(-1)));
      to_part.copy_(joint.narrow(-1, to_plain.size(-1), to_part.size(-1)));
      return turned;
    };
    r.query_rope = split(dq, r.query, *call.query_rope, call.heads);
    r.key_rope = split(dk, r.key, *call.key_rope, kv_heads);
  }
  r.pse = wants_bias ? d_bias.to(call.pse->scalar_type()) : none;
  r.sink = d_sink.defined() ? d_sink.to(call.sink->scalar_type()) : none;
  return r;
}

}  // namespace cann::aten::npu
