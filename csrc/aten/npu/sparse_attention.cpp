// Attention to chosen keys (DeepSeek's sparse attention): the indexer that chooses them and attention over the choice.

#include <limits>

#include "aten/npu/families.h"
#include "aten/npu/host_values.h"
#include "aten/npu/paged.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

using Layout = std::string_view;

// ---- Sequences of BSND, TND and paged tensors

struct Sequence {
  int64_t q_begin, q_length;  // rows of the (rows, ...) view of query
  int64_t k_begin, k_length;
};

void check_layouts(Layout query, Layout key, const char* op) {
  CANN_CHECK_OP(query == "BSND" || query == "TND", op, ": the layout of query must be BSND or TND, but got '", query,
                "'");
  CANN_CHECK_OP(key == query || key == "PA_BSND", op, ": the layout of key must be query's, '", query,
                "', or PA_BSND, but got '", key, "'");
}

// Lengths of query are cumulated for TND; those of key too unless it is paged.
std::vector<Sequence> sequences_of(const Tensor& query, const Tensor& key, const OptionalTensor& q_lengths,
                                   const OptionalTensor& k_lengths, Layout layout_query, Layout layout_key,
                                   const char* op) {
  const bool packed = layout_query == "TND", paged = layout_key == "PA_BSND";
  CANN_CHECK_OP(!packed || has(q_lengths), op, ": layout TND needs actual_seq_lengths_query");
  CANN_CHECK_OP((!packed && !paged) || has(k_lengths), op, ": this layout of key needs its actual lengths");
  const auto q = has(q_lengths) ? integers_of(*q_lengths) : std::vector<int64_t>();
  const auto k = has(k_lengths) ? integers_of(*k_lengths) : std::vector<int64_t>();
  const int64_t count = packed ? static_cast<int64_t>(q.size()) : query.size(0);
  CANN_CHECK_OP(
      (q.empty() || static_cast<int64_t>(q.size()) == count) && (k.empty() || static_cast<int64_t>(k.size()) == count),
      op, ": there are ", count, " sequences, but ", q.size(), " lengths of query and ", k.size(), " of key");
  std::vector<Sequence> sequences;
  for (int64_t b = 0; b < count; ++b) {
    const auto i = static_cast<size_t>(b);
    Sequence s{};
    s.q_begin = packed ? (b == 0 ? 0 : q[i - 1]) : b * query.size(1);
    s.q_length = packed ? q[i] - s.q_begin : q.empty() ? query.size(1) : q[i];
    const bool key_packed = packed && !paged;
    s.k_begin = key_packed ? (b == 0 ? 0 : k[i - 1]) : paged ? 0 : b * key.size(1);
    s.k_length = key_packed ? k[i] - s.k_begin : k.empty() ? key.size(1) : k[i];
    sequences.push_back(s);
  }
  return sequences;
}

// Rows (length, Nkv, D) of a sequence.
Tensor key_rows(const Tensor& key, const OptionalTensor& block_table, const Sequence& s, int64_t b, Layout layout_key,
                const char* op) {
  if (layout_key != "PA_BSND") {
    return (key.dim() == 4 ? key.flatten(0, 1) : key).narrow(0, s.k_begin, s.k_length);
  }
  CANN_CHECK_OP(has(block_table), op, ": layout PA_BSND needs block_table");
  return paged_rows(key, block_table->select(0, b), s.k_length, op);
}

// (rows, ...) of BSND or TND.
Tensor flat_rows(const Tensor& t, Layout layout) { return layout == "BSND" ? t.flatten(0, 1) : t; }

// True where query i of a sequence may not see key j: behind the diagonal that ends at the bottom right.
Tensor unseen(const Tensor& key_positions, const Sequence& s, int64_t row, int64_t rows) {
  const Tensor last =
      at::arange(row, row + rows, key_positions.options()).add(s.k_length - s.q_length).reshape({rows, 1});
  return key_positions.gt(last);
}

// Rows to treat at a time, so that `per_row` numbers each stay within a cache.
int64_t rows_at_once(int64_t per_row) {
  return std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(1, per_row));
}

// ---- The indexer: scores = sum over heads of weight * relu(q . k), the sparse_count largest of each query

using Pair = std::tuple<Tensor, Tensor>;

Pair lightning_indexer(const Tensor& query, const Tensor& key, const Tensor& weights, const OptionalTensor& q_lengths,
                       const OptionalTensor& k_lengths, const OptionalTensor& block_table, Layout layout_query,
                       Layout layout_key, int64_t sparse_count, int64_t sparse_mode, int64_t, int64_t,
                       bool return_value) {
  constexpr const char* kOp = "npu_lightning_indexer";
  check_layouts(layout_query, layout_key, kOp);
  CANN_CHECK_OP(sparse_mode == 0 || sparse_mode == 3, kOp, ": sparse_mode must be 0 or 3, but got ", sparse_mode);
  CANN_CHECK_OP(key.size(-2) == 1, kOp, ": key must have one head, but has ", key.size(-2));
  const Tensor q = flat_rows(query, layout_query), w = flat_rows(weights, layout_query);
  const auto type = compute_type(query);
  Tensor indices = at::full({q.size(0), sparse_count}, -1, query.options().dtype(at::kInt));
  Tensor values = at::full({q.size(0), sparse_count}, -std::numeric_limits<double>::infinity(), query.options());
  const auto sequences = sequences_of(query, key, q_lengths, k_lengths, layout_query, layout_key, kOp);
  for (size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& s = sequences[b];
    const Tensor k = key_rows(key, block_table, s, static_cast<int64_t>(b), layout_key, kOp).select(1, 0).to(type).t();
    const Tensor positions = at::arange(s.k_length, indices.options().dtype(at::kLong));
    const int64_t step = rows_at_once(q.size(1) * s.k_length), count = std::min(sparse_count, s.k_length);
    for (int64_t row = 0; row < s.q_length; row += step) {
      const int64_t rows = std::min(step, s.q_length - row), begin = s.q_begin + row;
      // (rows, N, Skv), then weighed and summed over heads
      const Tensor scores = at::matmul(q.narrow(0, begin, rows).to(type), k).relu_();
      Tensor total = scores.mul_(w.narrow(0, begin, rows).to(type).reshape({rows, -1, 1})).sum(1);
      if (sparse_mode == 3)
        total.masked_fill_(unseen(positions, s, row, rows), -std::numeric_limits<double>::infinity());
      auto [sorted, order] = total.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
      const Tensor top = sorted.narrow(1, 0, count);
      const Tensor chosen = order.narrow(1, 0, count).masked_fill(top.isneginf(), -1);
      indices.narrow(0, begin, rows).narrow(1, 0, count).copy_(chosen);
      values.narrow(0, begin, rows).narrow(1, 0, count).copy_(top);
    }
  }
  c10::DimVector sizes(query.sizes().begin(), query.sizes().end());
  sizes[sizes.size() - 2] = 1;
  sizes.back() = sparse_count;
  return {indices.reshape(sizes), return_value ? values.reshape(sizes) : at::empty({0}, query.options())};
}
Pair lightning_indexer_shape(const Tensor& query, const Tensor&, const Tensor&, const OptionalTensor&,
                             const OptionalTensor&, const OptionalTensor&, Layout layout_query, Layout layout_key,
                             int64_t sparse_count, int64_t, int64_t, int64_t, bool return_value) {
  check_layouts(layout_query, layout_key, "npu_lightning_indexer");
  c10::SymDimVector sizes = sizes_of(query);
  sizes[sizes.size() - 2] = 1;
  sizes.back() = sparse_count;
  return {empty_of(query, sizes, at::kInt), return_value ? empty_of(query, sizes) : empty_of(query, {0})};
}
variable_list lightning_indexer_derivative(Context<lightning_indexer>&) {
  CANN_CHECK_SUPPORTED(false,
                       "npu_lightning_indexer: the gradient of its values would need "
                       "npu_lightning_indexer_grad, which is not implemented; the indices have none");
}

// ---- Attention over the chosen keys

using Three = std::tuple<Tensor, Tensor, Tensor>;

struct SparseCall {
  Tensor query, key, value, indices;
  OptionalTensor query_rope, key_rope, block_table, sinks;
  double scale;
  int64_t block;
  bool causal;
  Layout layout_query, layout_key;
};

// Positions (rows, count * block) of the chosen keys, and which of them do not count.
std::pair<Tensor, Tensor> chosen_keys(const Tensor& indices, const SparseCall& c, const Sequence& s, int64_t row) {
  const Tensor blocks = indices.to(at::kLong);
  Tensor positions = blocks, hidden = blocks.lt(0);
  if (c.block > 1) {
    positions = blocks.unsqueeze(-1).mul(c.block).add(at::arange(c.block, blocks.options())).flatten(1);
    hidden = hidden.repeat_interleave(c.block, 1);
  }
  hidden = hidden.logical_or(positions.ge(s.k_length));
  if (c.causal) hidden.logical_or_(unseen(positions, s, row, positions.size(0)));
  return {positions.clamp(0, std::max<int64_t>(0, s.k_length - 1)), hidden};
}

Tensor with_rope(const Tensor& plain, const OptionalTensor& rope) {
  return has(rope) ? at::cat({plain, *rope}, -1) : plain;
}

// One sequence and one head of keys; q (rows, G, D), out (rows, G, Dv), statistics (rows, G).
void attend_chosen(const SparseCall& c, const Sequence& s, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& indices, const Tensor& sink, const Tensor& out, const Tensor& maximum,
                   const Tensor& sum) {
  const auto type = compute_type(c.query);
  const int64_t width = indices.size(1) * c.block;
  if (width == 0 || s.k_length == 0) return;
  const int64_t step = rows_at_once(width * std::max(k.size(1), q.size(1)));
  for (int64_t row = 0; row < s.q_length; row += step) {
    const int64_t rows = std::min(step, s.q_length - row);
    const auto [positions, hidden] = chosen_keys(indices.narrow(0, row, rows), c, s, row);
    const auto gathered = [&](const Tensor& t) {
      return t.index_select(0, positions.reshape(-1)).view({rows, width, t.size(1)}).to(type);
    };
    Tensor p = at::bmm(q.narrow(0, row, rows).to(type).mul(c.scale), gathered(k).transpose(1, 2));
    p.masked_fill_(hidden.unsqueeze(1), -std::numeric_limits<double>::infinity());
    Tensor m = p.amax(-1, /*keepdim=*/true).clamp_min_(std::numeric_limits<float>::lowest());
    if (sink.defined()) m = at::maximum(m, sink.to(type).view({1, -1, 1}));
    p.sub_(m).exp_();
    Tensor l = p.sum(-1, /*keepdim=*/true);
    if (sink.defined()) l.add_(sink.to(type).view({1, -1, 1}).sub(m).exp_());
    out.narrow(0, row, rows).copy_(at::bmm(p, gathered(v)).div_(l.clamp_min(std::numeric_limits<float>::min())));
    maximum.narrow(0, row, rows).copy_(m.squeeze(-1));
    sum.narrow(0, row, rows).copy_(l.squeeze(-1));
  }
}

c10::SymDimVector statistics_sizes(const Tensor& query, const Tensor& key, Layout layout) {
  const SymInt kv = key.sym_size(-2), group = query.sym_size(-2) / kv;
  if (layout == "TND") return {kv, query.sym_size(0), group};
  return {query.sym_size(0), kv, query.sym_size(1), group};
}

Three sparse_attention(const Tensor& query, const Tensor& key, const OptionalTensor& value, const Tensor& indices,
                       double scale, const OptionalTensor& block_table, const OptionalTensor& q_lengths,
                       const OptionalTensor& k_lengths, const OptionalTensor& query_rope,
                       const OptionalTensor& key_rope, int64_t sparse_block_size, Layout layout_query, Layout layout_kv,
                       int64_t sparse_mode, int64_t, int64_t, int64_t, bool return_lse, const OptionalTensor& sinks) {
  constexpr const char* kOp = "npu_sparse_flash_attention";
  check_layouts(layout_query, layout_kv, kOp);
  CANN_CHECK_OP(sparse_mode == 0 || sparse_mode == 3, kOp, ": sparse_mode must be 0 or 3, but got ", sparse_mode);
  CANN_CHECK_OP(sparse_block_size > 0, kOp, ": sparse_block_size must be positive, but got ", sparse_block_size);
  const SparseCall c{.query = query,
                     .key = key,
                     .value = has(value) ? *value : key,
                     .indices = indices,
                     .query_rope = query_rope,
                     .key_rope = key_rope,
                     .block_table = block_table,
                     .sinks = sinks,
                     .scale = scale,
                     .block = sparse_block_size,
                     .causal = sparse_mode == 3,
                     .layout_query = layout_query,
                     .layout_key = layout_kv};
  const int64_t kv_heads = key.size(-2), group = query.size(-2) / kv_heads;
  const Tensor q = flat_rows(with_rope(query, query_rope), layout_query), chosen = flat_rows(indices, layout_query);
  const auto statistics = statistics_type(query);
  Tensor out = at::zeros({q.size(0), query.size(-2), c.value.size(-1)}, query.options());
  Tensor maximum =
      at::full({kv_heads, q.size(0), group}, std::numeric_limits<float>::lowest(), query.options().dtype(statistics));
  Tensor sum = at::zeros_like(maximum);
  const auto sequences = sequences_of(query, key, q_lengths, k_lengths, layout_query, layout_kv, kOp);
  for (size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& s = sequences[b];
    const auto rows = [&](const Tensor& t) {
      return key_rows(t, block_table, s, static_cast<int64_t>(b), layout_kv, kOp);
    };
    const Tensor k = has(key_rope) ? at::cat({rows(key), rows(*key_rope)}, -1) : rows(key), v = rows(c.value);
    for (int64_t h = 0; h < kv_heads; ++h) {
      const auto part = [&](const Tensor& t) { return t.narrow(0, s.q_begin, s.q_length).narrow(1, h * group, group); };
      attend_chosen(c, s, part(q), k.select(1, h), v.select(1, h), chosen.narrow(0, s.q_begin, s.q_length).select(1, h),
                    has(sinks) ? sinks->narrow(0, h * group, group) : Tensor(), part(out),
                    maximum.select(0, h).narrow(0, s.q_begin, s.q_length),
                    sum.select(0, h).narrow(0, s.q_begin, s.q_length));
    }
  }
  c10::DimVector sizes(query.sizes().begin(), query.sizes().end());
  sizes.back() = c.value.size(-1);
  const auto finished = [&](const Tensor& t) {
    if (!return_lse) return at::empty({0}, t.options());
    if (layout_query == "TND") return t;
    return t.unflatten(1, {query.size(0), query.size(1)}).transpose(0, 1).contiguous();
  };
  return {out.view(sizes), finished(maximum), finished(sum)};
}
Three sparse_attention_shape(const Tensor& query, const Tensor& key, const OptionalTensor& value, const Tensor&, double,
                             const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                             const OptionalTensor&, int64_t, Layout layout_query, Layout layout_kv, int64_t, int64_t,
                             int64_t, int64_t, bool return_lse, const OptionalTensor&) {
  check_layouts(layout_query, layout_kv, "npu_sparse_flash_attention");
  c10::SymDimVector sizes = sizes_of(query);
  sizes.back() = (has(value) ? *value : key).sym_size(-1);
  c10::SymDimVector statistics{0};
  if (return_lse) statistics = statistics_sizes(query, key, layout_query);
  const auto type = statistics_type(query);
  return {empty_of(query, sizes), empty_of(query, statistics, type), empty_of(query, statistics, type)};
}
// ---- Its gradients

struct HeadGradients {
  Tensor q, k, v;  // (rows, G, D) written, (Skv, D) and (Skv, Dv) added to; the last two in the compute type
};

// As attend_chosen(); statistics that are empty are computed again.
void chosen_gradients(const SparseCall& c, const Sequence& s, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& indices, const Tensor& d_out, const Tensor& out, const Tensor& maximum,
                      const Tensor& sum, const HeadGradients& grads) {
  const auto type = compute_type(c.query);
  const int64_t width = indices.size(1) * c.block;
  if (width == 0 || s.k_length == 0) return;
  const int64_t step = rows_at_once(width * std::max(k.size(1), q.size(1)));
  for (int64_t row = 0; row < s.q_length; row += step) {
    const int64_t rows = std::min(step, s.q_length - row);
    const auto [positions, hidden] = chosen_keys(indices.narrow(0, row, rows), c, s, row);
    const Tensor flat = positions.reshape(-1);
    const auto gathered = [&](const Tensor& t) {
      return t.index_select(0, flat).view({rows, width, t.size(1)}).to(type);
    };
    const auto some = [&](const Tensor& t) { return t.narrow(0, row, rows).to(type); };
    const Tensor queries = some(q).mul(c.scale), chosen = gathered(k), g = some(d_out);
    Tensor p = at::bmm(queries, chosen.transpose(1, 2));
    p.masked_fill_(hidden.unsqueeze(1), -std::numeric_limits<double>::infinity());
    Tensor m, l;
    if (maximum.defined()) {
      m = some(maximum).unsqueeze(-1), l = some(sum).unsqueeze(-1);
      p.sub_(m).exp_();
    } else {
      m = p.amax(-1, /*keepdim=*/true).clamp_min_(std::numeric_limits<float>::lowest());
      p.sub_(m).exp_();
      l = p.sum(-1, /*keepdim=*/true);
    }
    p.div_(l.clamp_min(std::numeric_limits<float>::min()));
    const Tensor delta = g.mul(some(out)).sum(-1, /*keepdim=*/true);
    const Tensor ds = at::bmm(g, gathered(v).transpose(1, 2)).sub_(delta).mul_(p);
    grads.q.narrow(0, row, rows).copy_(at::bmm(ds, chosen).mul_(c.scale));
    grads.k.index_add_(0, flat, at::bmm(ds.transpose(1, 2), queries).flatten(0, 1));
    grads.v.index_add_(0, flat, at::bmm(p.transpose(1, 2), g).flatten(0, 1));
  }
}

using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Returns gradients of query, key, value, query_rope, key_rope; without value, key's has both parts.
Five sparse_attention_grad(const Tensor& query, const Tensor& key, const OptionalTensor& value, const Tensor& indices,
                           const Tensor& d_out, const Tensor& out, const Tensor& softmax_max, const Tensor& softmax_sum,
                           double scale, int64_t sparse_block_size, const OptionalTensor& query_rope,
                           const OptionalTensor& key_rope, const OptionalTensor& q_lengths,
                           const OptionalTensor& k_lengths, std::optional<Layout> layout_name,
                           std::optional<int64_t> sparse_mode, std::optional<int64_t>, std::optional<int64_t>,
                           std::optional<int64_t>) {
  constexpr const char* kOp = "npu_sparse_flash_attention_grad";
  const Layout layout = layout_name.value_or("BSND");
  check_layouts(layout, layout, kOp);
  const SparseCall c{.query = query,
                     .key = key,
                     .value = has(value) ? *value : key,
                     .indices = indices,
                     .query_rope = query_rope,
                     .key_rope = key_rope,
                     .block_table = std::nullopt,
                     .sinks = std::nullopt,
                     .scale = scale,
                     .block = sparse_block_size,
                     .causal = sparse_mode.value_or(3) == 3,
                     .layout_query = layout,
                     .layout_key = layout};
  const auto type = compute_type(query);
  const int64_t kv_heads = key.size(-2), group = query.size(-2) / kv_heads;
  const Tensor q = flat_rows(with_rope(query, query_rope), layout), k = flat_rows(with_rope(key, key_rope), layout);
  const Tensor v = flat_rows(c.value, layout), chosen = flat_rows(indices, layout);
  const Tensor g = flat_rows(d_out, layout), o = flat_rows(out, layout);
  // Statistics as (Nkv, rows, G).
  const auto statistics = [&](const Tensor& t) {
    if (t.numel() == 0) return Tensor();
    return layout == "TND" ? t : t.transpose(0, 1).flatten(1, 2);
  };
  const Tensor maximum = statistics(softmax_max), sum = statistics(softmax_sum);
  Tensor dq = at::zeros(q.sizes(), q.options());
  Tensor dk = at::zeros(k.sizes(), k.options().dtype(type)), dv = at::zeros(v.sizes(), v.options().dtype(type));
  const auto sequences = sequences_of(query, key, q_lengths, k_lengths, layout, layout, kOp);
  for (const Sequence& s : sequences) {
    for (int64_t h = 0; h < kv_heads; ++h) {
      const auto queries = [&](const Tensor& t) {
        return t.narrow(0, s.q_begin, s.q_length).narrow(1, h * group, group);
      };
      const auto keys = [&](const Tensor& t) { return t.narrow(0, s.k_begin, s.k_length).select(1, h); };
      const auto of_rows = [&](const Tensor& t) {
        return t.defined() ? t.select(0, h).narrow(0, s.q_begin, s.q_length) : Tensor();
      };
      chosen_gradients(c, s, queries(q), keys(k), keys(v), chosen.narrow(0, s.q_begin, s.q_length).select(1, h),
                       queries(g), queries(o), of_rows(maximum), of_rows(sum),
                       {.q = queries(dq), .k = keys(dk), .v = keys(dv)});
    }
  }
  const int64_t plain = query.size(-1);
  const auto cut = [&](const Tensor& t, int64_t begin, const Tensor& like) {
    return t.narrow(-1, begin, like.size(-1)).reshape(like.sizes()).to(like.scalar_type()).contiguous();
  };
  const Tensor none = at::empty({0}, query.options());
  Tensor d_key = cut(dk, 0, key);
  if (!has(value)) d_key.add_(dv.reshape(key.sizes()));
  return {cut(dq, 0, query), d_key, has(value) ? cut(dv, 0, *value) : none,
          has(query_rope) ? cut(dq, plain, *query_rope) : none, has(key_rope) ? cut(dk, plain, *key_rope) : none};
}
Five sparse_attention_grad_shape(const Tensor& query, const Tensor& key, const OptionalTensor& value, const Tensor&,
                                 const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, int64_t,
                                 const OptionalTensor& query_rope, const OptionalTensor& key_rope,
                                 const OptionalTensor&, const OptionalTensor&, std::optional<Layout>,
                                 std::optional<int64_t>, std::optional<int64_t>, std::optional<int64_t>,
                                 std::optional<int64_t>) {
  const auto like = [&](const OptionalTensor& t) {
    return has(t) ? at::empty_like(*t, at::MemoryFormat::Contiguous) : empty_of(query, {0});
  };
  return {like(query), like(key), like(value), like(query_rope), like(key_rope)};
}

variable_list sparse_attention_derivative(Context<sparse_attention>& c) {
  const Layout layout_query = c.input<11>(), layout_kv = c.input<12>();
  CANN_CHECK_SUPPORTED(layout_query == layout_kv,
                       "npu_sparse_flash_attention: there is no gradient with a paged cache, on hardware neither");
  const Tensor maximum = c.output<1>();
  CANN_CHECK_SUPPORTED(!has(c.input<18>()) || maximum.sym_numel() > 0,
                       "npu_sparse_flash_attention: the gradient with sinks needs return_softmax_lse=True");
  const OptionalTensor value = c.input<2>(), query_rope = c.input<8>(), key_rope = c.input<9>();
  auto [dq, dk, dv, dqr, dkr] = Operator<"npu_sparse_flash_attention_grad", sparse_attention_grad>::call(
      c.input<0>(), c.input<1>(), value, c.input<3>(), c.grad(0), c.output<0>(), maximum, c.output<2>(), c.input<4>(),
      c.input<10>(), query_rope, key_rope, c.input<6>(), c.input<7>(), layout_query, c.input<13>(), c.input<14>(),
      c.input<15>(), c.input<16>());
  const auto wanted = [](const OptionalTensor& t, const Tensor& grad) { return has(t) ? grad : Tensor(); };
  return {dq,
          dk,
          wanted(value, dv),
          Tensor(),
          Tensor(),
          Tensor(),
          Tensor(),
          wanted(query_rope, dqr),
          wanted(key_rope, dkr),
          Tensor()};
}

}  // namespace

void register_sparse_attention(Registry& ops) {
  ops.add<"npu_lightning_indexer", lightning_indexer, lightning_indexer_shape>(
         "(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, Tensor? "
         "actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", "
         "int "
         "sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int "
         "next_tokens=9223372036854775807, bool return_value=False) -> (Tensor, Tensor)")
      .autograd<lightning_indexer_derivative, Saves<>, Saves<>, Saves<1>>();
  ops.add<"npu_sparse_flash_attention", sparse_attention, sparse_attention_shape>(
         "(Tensor query, Tensor key, Tensor? value, Tensor sparse_indices, float scale_value, *, Tensor? "
         "block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? "
         "query_rope=None, Tensor? key_rope=None, int sparse_block_size=1, str layout_query=\"BSND\", str "
         "layout_kv=\"BSND\", int sparse_mode=3, int pre_tokens=9223372036854775807, int "
         "next_tokens=9223372036854775807, int attention_mode=0, bool return_softmax_lse=False, Tensor? sinks=None) -> "
         "(Tensor, Tensor, Tensor)")
      .autograd<sparse_attention_derivative, Saves<0, 1, 2, 3, 6, 7, 8, 9, 18>, Saves<0, 1, 2>>();
  ops.add<"npu_sparse_flash_attention_grad", sparse_attention_grad, sparse_attention_grad_shape>(
      "(Tensor query, Tensor key, Tensor? value, Tensor sparse_indices, Tensor d_out, Tensor out, Tensor softmax_max, "
      "Tensor softmax_sum, float scale_value, int sparse_block_size, Tensor? query_rope=None, Tensor? key_rope=None, "
      "Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, str? layout=\"BSND\", int? sparse_mode=3, int? "
      "pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807, int? attention_mode=0) -> (Tensor, "
      "Tensor, "
      "Tensor, Tensor, Tensor)");
}

}  // namespace cann::aten::npu
