// npu_fused_infer_attention_score and its version 2: attention of inference, with sequences of their own lengths and
// paged key-value caches.

#include <limits>

#include "aten/npu/attention_layout.h"
#include "aten/npu/families.h"
#include "aten/npu/infer_attention_schema.h"
#include "aten/npu/paged.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

using Lengths = at::OptionalSymIntArrayRef;
using Pair = std::tuple<Tensor, Tensor>;

constexpr const char* kOp = "npu_fused_infer_attention_score";

// ---- Layouts: "X" or "X_Y", X of the inputs and Y of the result

struct Layouts {
  std::string_view in, out;
  bool packed() const { return in == "TND" || in == "NTD"; }
};
Layouts layouts_of(std::string_view name) {
  const size_t cut = name.find('_');
  const Layouts l{name.substr(0, cut), cut == std::string_view::npos ? name : name.substr(cut + 1)};
  for (const std::string_view part : {l.in, l.out}) {
    CANN_CHECK_OP(part == "BSH" || part == "BSND" || part == "BNSD" || part == "NBSD" || part == "NSD" ||
                      part == "TND" || part == "NTD",
                  kOp,
                  ": input_layout must be one of BSH, BSND, BNSD, NSD, TND and NTD, or one of them, _ and that of "
                  "the result, but got '",
                  name, "'");
  }
  return l;
}

// A view as (B, N, S, D); packed layouts as (1, N, T, D).
Tensor as_heads(const Tensor& t, std::string_view layout, const SymInt& heads) {
  if (layout == "BSH") return t.unflatten_symint(2, {heads, -1}).transpose(1, 2);
  if (layout == "BSND") return t.transpose(1, 2);
  if (layout == "NBSD") return t.transpose(0, 1);
  if (layout == "NSD" || layout == "NTD") return t.unsqueeze(0);
  if (layout == "TND") return t.transpose(0, 1).unsqueeze(0);
  return t;
}
c10::SymDimVector sizes_in(std::string_view layout, const SymInt& b, const SymInt& n, const SymInt& s,
                           const SymInt& d) {
  if (layout == "BSH") return {b, s, n * d};
  if (layout == "BSND") return {b, s, n, d};
  if (layout == "NBSD") return {n, b, s, d};
  if (layout == "NSD" || layout == "NTD") return {n, s, d};
  if (layout == "TND") return {s, n, d};
  return {b, n, s, d};
}

// ---- One call

struct Call {
  Tensor query, key, value;
  OptionalTensor pse, mask, block_table, query_rope, key_rope, sink;
  std::optional<std::vector<int64_t>> q_lengths, kv_lengths;
  int64_t heads, kv_heads;
  double scale;
  SparsePattern pattern;
  Layouts layouts;
  bool wants_lse;
};

// A paged cache as (blocks, block_size, Nkv, D), from (blocks, block_size, H) or (blocks, Nkv, block_size, D).
Tensor paged_cache(const Tensor& cache, const Call& c) {
  if (cache.dim() == 3) return cache.unflatten(2, {c.kv_heads, -1});
  CANN_CHECK_SUPPORTED(cache.dim() == 4, kOp,
                       ": a paged cache must be (blocks, block_size, H) or (blocks, N, block_size, "
                       "D), but has sizes ",
                       cache.sizes());
  return cache.transpose(1, 2);
}

// Keys or values of one sequence as (1, Nkv, Skv, D). `whole` is the (B, Nkv, S, D) view when they are not paged.
Tensor sequence_rows(const Tensor& cache, const Tensor& whole, const Call& c, int64_t b, int64_t begin,
                     int64_t length) {
  if (has(c.block_table)) {
    return paged_rows(paged_cache(cache, c), c.block_table->select(0, b), length, kOp).transpose(0, 1).unsqueeze(0);
  }
  return whole.narrow(0, c.layouts.packed() ? 0 : b, 1).narrow(2, begin, length);
}

struct Span {
  int64_t begin, length;
};
// Rows of sequence b: given by cumulated ends (packed) or by lengths; all `size` of them when not given.
Span span_of(const std::optional<std::vector<int64_t>>& given, bool cumulated, int64_t b, int64_t size) {
  if (!given.has_value() || given->empty()) return {0, size};
  const auto i = static_cast<size_t>(b);
  if (!cumulated) return {0, given->size() == 1 ? given->front() : given->at(i)};
  const int64_t begin = b == 0 ? 0 : given->at(i - 1);
  return {begin, given->at(i) - begin};
}

int64_t sequences(const Call& c, const Tensor& q) {
  if (!c.layouts.packed()) return q.size(0);
  CANN_CHECK_OP(c.q_lengths.has_value() && !c.q_lengths->empty(), kOp,
                ": input_layout TND needs the cumulated lengths of "
                "the query sequences");
  return static_cast<int64_t>(c.q_lengths->size());
}

Tensor mask_of(const Call& c, const AttentionSizes& sizes) {
  OptionalTensor mask = c.mask;
  if (has(mask) && mask->dim() == 3) mask = mask->unsqueeze(1);
  if (has(mask) && mask->scalar_type() == at::kChar) mask = mask->to(at::kBool);
  // Sizes of masks are those of the longest sequence, which the layout TND stands for.
  return elementwise_mask(mask, c.pattern, sizes, AttentionLayout::kTND, kOp);
}

Pair infer(const Call& c) {
  const Tensor q0 = as_heads(c.query, c.layouts.in, c.heads);
  CANN_CHECK_OP(q0.dim() == 4 && q0.size(1) == c.heads, kOp, ": query has sizes ", c.query.sizes(), ", which with ",
                "input_layout ", c.layouts.in, " is not of ", c.heads, " heads");
  const Tensor q = has(c.query_rope) ? at::cat({q0, as_heads(*c.query_rope, c.layouts.in, c.heads)}, -1) : q0;
  const bool paged = has(c.block_table);
  const auto whole = [&](const Tensor& t) { return paged ? Tensor() : as_heads(t, c.layouts.in, c.kv_heads); };
  const Tensor k0 = whole(c.key), v0 = whole(c.value);
  const Tensor kr0 = has(c.key_rope) ? whole(*c.key_rope) : Tensor();
  const int64_t value_size = paged ? paged_cache(c.value, c).size(3) : v0.size(3);
  Tensor out = at::zeros(C10_AS_INTARRAYREF_SLOW(sizes_in(c.layouts.out, q.size(0), c.heads, q.size(2), value_size)),
                         c.query.options());
  const Tensor out_heads = as_heads(out, c.layouts.out, c.heads);
  Tensor lse = at::full({q.size(0), c.heads, q.size(2), 1}, std::numeric_limits<float>::infinity(),
                        c.query.options().dtype(statistics_type(c.query)));
  AttentionTerms terms;
  terms.scale = c.scale, terms.mask = mask_of(c, {}), terms.sink = value_or_undefined(c.sink);
  if (has(c.pse)) terms.bias_kind = Bias::kAfterScale, terms.bias = wide(*c.pse);
  for (int64_t b = 0; b < sequences(c, q); ++b) {
    const Span rows = span_of(c.q_lengths, c.layouts.packed(), b, q.size(2));
    // Lengths of a paged cache are never cumulated.
    CANN_CHECK_OP(!paged || c.kv_lengths.has_value(), kOp, ": block_table needs the lengths of the sequences");
    const Span keys = span_of(c.kv_lengths, c.layouts.packed() && !paged, b, paged ? 0 : k0.size(2));
    Tensor k = sequence_rows(c.key, k0, c, b, keys.begin, keys.length);
    if (has(c.key_rope)) k = at::cat({k, sequence_rows(*c.key_rope, kr0, c, b, keys.begin, keys.length)}, -1);
    const Tensor q_rows = q.narrow(0, c.layouts.packed() ? 0 : b, 1).narrow(2, rows.begin, rows.length);
    const Tensor v = sequence_rows(c.value, v0, c, b, keys.begin, keys.length);
    // The sample's band, from the same rules as in training.
    auto samples = attention_samples(q_rows, k, v, AttentionLayout::kBNSD, c.pattern, {}, has(c.mask), kOp);
    AttentionSample sample = samples.front().sample;
    sample.batch = b;
    const auto target = [&](const Tensor& t) {
      return t.narrow(0, c.layouts.packed() ? 0 : b, 1).narrow(2, rows.begin, rows.length);
    };
    const auto statistics = [&] { return at::empty({1, c.heads, rows.length, 1}, lse.options()); };
    const Tensor maximum = statistics(), sum = statistics();
    attention_forward(sample, terms, target(out_heads), maximum, sum);
    target(lse).copy_(maximum.add(sum.log()).masked_fill_(sum.eq(0), std::numeric_limits<float>::infinity()));
  }
  if (!c.wants_lse) return {out, at::zeros({1}, lse.options())};
  return {out, c.layouts.packed() ? lse.squeeze(0).transpose(0, 1).contiguous() : lse};
}

Pair infer_shape(const Tensor& query, const Tensor& value, const OptionalTensor& block_table, int64_t heads,
                 int64_t kv_heads, std::string_view layout, bool wants_lse) {
  const Layouts l = layouts_of(layout);
  const Tensor q = as_heads(query, l.in, heads);
  const SymInt kv = kv_heads > 0 ? kv_heads : heads;
  const SymInt size = !has(block_table)  ? as_heads(value, l.in, kv).sym_size(3)
                      : value.dim() == 3 ? value.sym_size(2) / kv
                                         : value.sym_size(3);
  const auto type = statistics_type(query);
  const Tensor out = empty_of(query, sizes_in(l.out, q.sym_size(0), heads, q.sym_size(2), size));
  if (!wants_lse) return {out, empty_of(query, {1}, type)};
  if (l.packed()) return {out, empty_of(query, {q.sym_size(2), heads, 1}, type)};
  return {out, empty_of(query, {q.sym_size(0), heads, q.sym_size(2), 1}, type)};
}

void check_unquantised(std::initializer_list<const OptionalTensor*> tensors, const Tensor& query) {
  for (const OptionalTensor* t : tensors) {
    CANN_CHECK_SUPPORTED(!has(*t), kOp,
                         ": quantised queries, caches and results, padding and shared prefixes are not "
                         "implemented");
  }
  CANN_CHECK_SUPPORTED(query.is_floating_point(), kOp, ": query must be of a floating type, but is ",
                       query.scalar_type());
}

std::optional<std::vector<int64_t>> numbers(Lengths lengths) {
  if (!lengths.has_value()) return std::nullopt;
  std::vector<int64_t> list;
  for (const SymInt& n : *lengths) list.push_back(n.expect_int());
  return list;
}

// ---- Version 2

using Type = std::optional<int64_t>;

// Shape function of a kernel with these positions of its parameters.
template <auto kKernel, size_t kTable, size_t kHeads, size_t kKvHeads, size_t kLayout, size_t kWantsLse>
struct ShapeOf;
template <class... A, Pair (*kKernel)(A...), size_t kTable, size_t kHeads, size_t kKvHeads, size_t kLayout,
          size_t kWantsLse>
struct ShapeOf<kKernel, kTable, kHeads, kKvHeads, kLayout, kWantsLse> {
  static Pair call(A... args) {
    const auto all = std::forward_as_tuple(args...);
    return infer_shape(std::get<0>(all), std::get<2>(all), std::get<kTable>(all), std::get<kHeads>(all),
                       std::get<kKvHeads>(all), std::get<kLayout>(all), std::get<kWantsLse>(all));
  }
};

// s*: scales and offsets of quantised forms.
Pair infer_v2(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& query_rope,
              const OptionalTensor& key_rope, const OptionalTensor& pse, const OptionalTensor& mask, Lengths q_lengths,
              Lengths kv_lengths, const OptionalTensor& block_table, const OptionalTensor& s1, const OptionalTensor& s2,
              const OptionalTensor& s3, const OptionalTensor& s4, const OptionalTensor& s5, const OptionalTensor& s6,
              const OptionalTensor& s7, const OptionalTensor& s8, const OptionalTensor& s9, const OptionalTensor& sink,
              int64_t heads, int64_t kv_heads, double scale, int64_t pre, int64_t next, std::string_view layout,
              int64_t sparse_mode, int64_t, int64_t, int64_t, int64_t, int64_t, bool wants_lse, Type, Type, Type, Type,
              Type, Type, Type, Type, Type, Type, Type, Type) {
  check_unquantised({&s1, &s2, &s3, &s4, &s5, &s6, &s7, &s8, &s9}, query);
  return infer({.query = query,
                .key = key,
                .value = value,
                .pse = pse,
                .mask = mask,
                .block_table = block_table,
                .query_rope = query_rope,
                .key_rope = key_rope,
                .sink = sink,
                .q_lengths = numbers(q_lengths),
                .kv_lengths = numbers(kv_lengths),
                .heads = heads,
                .kv_heads = kv_heads > 0 ? kv_heads : heads,
                .scale = scale,
                .pattern = {sparse_mode, pre, next, {}},
                .layouts = layouts_of(layout),
                .wants_lse = wants_lse});
}

// ---- Version 1: the same with other names and an order of its own

Pair infer_v1(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& pse,
              const OptionalTensor& mask, Lengths q_lengths, Lengths kv_lengths, const OptionalTensor& s1,
              const OptionalTensor& s2, const OptionalTensor& s3, const OptionalTensor& s4, const OptionalTensor& s5,
              const OptionalTensor& s6, const OptionalTensor& s7, const OptionalTensor& s8, const OptionalTensor& s9,
              const OptionalTensor& s10, const OptionalTensor& s11, const OptionalTensor& block_table,
              const OptionalTensor& query_padding, const OptionalTensor& kv_padding, const OptionalTensor& key_prefix,
              const OptionalTensor& value_prefix, Lengths, const OptionalTensor& query_rope,
              const OptionalTensor& key_rope, const OptionalTensor& s12, int64_t heads, double scale, int64_t pre,
              int64_t next, std::string_view layout, int64_t kv_heads, int64_t sparse_mode, int64_t, int64_t, int64_t,
              int64_t, int64_t, bool wants_lse) {
  check_unquantised({&s1, &s2, &s3, &s4, &s5, &s6, &s7, &s8, &s9, &s10, &s11, &s12, &query_padding, &kv_padding,
                     &key_prefix, &value_prefix},
                    query);
  return infer({.query = query,
                .key = key,
                .value = value,
                .pse = pse,
                .mask = mask,
                .block_table = block_table,
                .query_rope = query_rope,
                .key_rope = key_rope,
                .sink = std::nullopt,
                .q_lengths = numbers(q_lengths),
                .kv_lengths = numbers(kv_lengths),
                .heads = heads,
                .kv_heads = kv_heads > 0 ? kv_heads : heads,
                .scale = scale,
                .pattern = {sparse_mode, pre, next, {}},
                .layouts = layouts_of(layout),
                .wants_lse = wants_lse});
}

// ---- out= forms: a list (attention, lse) that takes the results

template <FixedString Id, auto kKernel>
struct OutOf;
template <FixedString Id, class... A, Pair (*kKernel)(A...)>
struct OutOf<Id, kKernel> {
  static Pair call(A... args, const OptionalTensor&, TensorList out) {
    CANN_CHECK_OP(out.size() == 2, Id.value, ": out must be (attention, softmax lse), but has ", out.size(),
                  " tensors");
    auto [attention, lse] = Operator<Id, kKernel>::hosted(static_cast<A&&>(args)...);
    const auto into = [](const Tensor& target, const Tensor& result) {
      if (!target.sizes().equals(result.sizes())) target.resize_(result.sizes());
      target.copy_(result);
    };
    into(out[0], attention);
    into(out[1], lse);
    return {out[0], out[1]};
  }
  static Pair shape(A..., const OptionalTensor&, TensorList out) { return {out[0], out[1]}; }
};

}  // namespace

void register_infer_attention(Registry& ops) {
  ops.add<"npu_fused_infer_attention_score_v2", infer_v2, ShapeOf<infer_v2, 9, 20, 21, 25, 32>::call>(
      "(" CANN_INFER_ATTENTION_V2_ARGUMENTS ") -> (Tensor, Tensor)");
  using OutV2 = OutOf<"npu_fused_infer_attention_score_v2.out", infer_v2>;
  ops.add_native<"npu_fused_infer_attention_score_v2.out", OutV2::call, OutV2::shape>(
      "(" CANN_INFER_ATTENTION_V2_ARGUMENTS ", Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)");
  ops.add<"npu_fused_infer_attention_score", infer_v1, ShapeOf<infer_v1, 18, 27, 32, 31, 39>::call>(
      "(" CANN_INFER_ATTENTION_V1_ARGUMENTS ") -> (Tensor, Tensor)");
  using OutV1 = OutOf<"npu_fused_infer_attention_score.out", infer_v1>;
  ops.add_native<"npu_fused_infer_attention_score.out", OutV1::call, OutV1::shape>(
      "(" CANN_INFER_ATTENTION_V1_ARGUMENTS ", Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)");
}

}  // namespace cann::aten::npu
