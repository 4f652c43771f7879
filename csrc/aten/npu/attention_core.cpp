#include "aten/npu/attention_core.h"

#include <algorithm>
#include <limits>

#include "aten/fused/attention.h"
#include "aten/parallel.h"

namespace cann::aten::npu {
namespace {

// Scores of one block: 4 MiB of float32, the size of a last-level cache's share of one core.
constexpr int64_t kScoreBudget = 1 << 20;
constexpr int64_t kUsefulRows = 64;

// Rows [row, row + rows) of the queries against keys [key, key + keys).
struct Block {
  int64_t row, rows, key, keys;
};

// One pass over the blocks of a sample; the parts of forward and backward that are the same.
class BlockPass {
 public:
  BlockPass(const AttentionSample& sample, const AttentionTerms& terms)
      : sample_(sample),
        terms_(terms),
        type_(compute_type(sample.q)),
        batch_(sample.q.size(0)),
        heads_(sample.q.size(1)),
        kv_heads_(sample.k.size(1)),
        queries_(sample.q.size(2)),
        keys_(sample.k.size(2)),
        k_(folded_keys(sample.k)),
        v_(folded_keys(sample.v)) {}

  // Calls body(block) for every block in order; blocks without a visible key have keys == 0.
  template <class Body>
  void for_each_block(const Body& body) const {
    const int64_t per_row = std::max<int64_t>(1, batch_ * heads_ * keys_);
    const int64_t height = std::clamp<int64_t>(kScoreBudget / per_row, 1, std::max<int64_t>(1, queries_));
    for (int64_t row = 0; row < queries_; row += height) {
      const int64_t rows = std::min(height, queries_ - row);
      const Band& band = sample_.band;
      const int64_t first = band.prefix > 0 ? 0 : std::clamp<int64_t>(row - band.before, 0, keys_);
      const int64_t last = std::clamp<int64_t>(std::max(row + rows + band.after, band.prefix), first, keys_);
      body(Block{row, rows, first, last - first});
    }
  }

  // (B, N, rows, D) -> (B * Nkv, group * rows, D) in the compute type: queries that share keys are one product.
  Tensor fold(const Tensor& rows_of_all) const {
    return rows_of_all.to(type_).reshape({batch_ * kv_heads_, -1, rows_of_all.size(3)});
  }
  // The inverse for results.
  Tensor unfold(const Tensor& folded, int64_t rows) const { return folded.view({batch_, heads_, rows, -1}); }

  Tensor folded_queries(const Block& b) const { return fold(sample_.q.narrow(2, b.row, b.rows)).mul(terms_.scale); }
  Tensor keys(const Block& b) const { return k_.narrow(1, b.key, b.keys); }
  Tensor values(const Block& b) const { return v_.narrow(1, b.key, b.keys); }

  // Scores (B, N, rows, keys) with bias and masks.
  Tensor scores(const Block& b, const Tensor& queries) const {
    Tensor s = unfold(at::bmm(queries, keys(b).transpose(1, 2)), b.rows);
    add_bias(b, s);
    if (const Tensor band = band_mask(b); band.defined()) s.masked_fill_(band, kMasked);
    if (terms_.mask.defined()) s.masked_fill_(slice(terms_.mask, b), kMasked);
    return s;
  }

  // Multiplies by the dropout mask of the block.
  void drop(const Block& b, const Tensor& probabilities) const {
    Tensor keep = at::empty(probabilities.sizes(), at::kBool);
    auto* out = keep.mutable_data_ptr<bool>();
    parallel_for(0, batch_ * heads_ * b.rows, 1 + (1 << 14) / b.keys, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t head = i / b.rows, row = b.row + i % b.rows;
        const int64_t begin = sample_.mask_base + (head * queries_ + row) * keys_ + b.key;
        if (terms_.dropout_mask.defined()) {
          unpack_keep(out + i * b.keys, terms_.dropout_mask, begin, b.keys);
        } else {
          fill_keep(out + i * b.keys, begin, b.keys, terms_.dropout, terms_.keep_probability);
        }
      }
    });
    probabilities.mul_(keep);
  }
  bool drops() const { return terms_.keep_probability < 1; }

  // The part of a (B or 1, N or 1, Sq or 1, Skv) or (Sq, Skv) tensor that belongs to a block.
  Tensor slice(const Tensor& full, const Block& b) const {
    Tensor part = full;
    if (part.dim() == 4 && part.size(0) > 1) part = part.narrow(0, sample_.batch, batch_);
    if (part.size(-2) > 1) part = part.narrow(-2, b.row, b.rows);
    return part.narrow(-1, b.key, b.keys);
  }

  Tensor sink() const { return terms_.sink.to(type_).view({1, heads_, 1, 1}); }

  static constexpr double kMasked = -std::numeric_limits<double>::infinity();

 private:
  Tensor folded_keys(const Tensor& t) const {
    return t.to(type_).contiguous().view({batch_ * kv_heads_, t.size(2), t.size(3)});
  }

  // Row and column positions of a block as (rows, 1) and (1, keys).
  static Tensor positions(int64_t begin, int64_t count) { return at::arange(begin, begin + count, at::kLong); }

  void add_bias(const Block& b, Tensor& s) const {
    switch (terms_.bias_kind) {
      case Bias::kNone:
        return;
      case Bias::kAfterScale:
        s.add_(slice(terms_.bias, b));
        return;
      case Bias::kBeforeScale:
        s.add_(slice(terms_.bias, b), terms_.scale);
        return;
      case Bias::kSlope:
      case Bias::kSlopeSqrt: {
        const Tensor rows = positions(b.row + sample_.q_start, b.rows).unsqueeze(1);
        Tensor distance = positions(b.key + sample_.kv_start, b.keys).unsqueeze(0).sub(rows).abs_().to(type_);
        if (terms_.bias_kind == Bias::kSlopeSqrt) distance.sqrt_();
        const bool per_batch = terms_.bias.dim() == 2 && terms_.bias.size(0) > 1;
        const Tensor slopes = per_batch ? terms_.bias.narrow(0, sample_.batch, batch_) : terms_.bias;
        s.sub_(slopes.to(type_).reshape({-1, heads_, 1, 1}).mul(distance));
        return;
      }
    }
  }

  // True where a query may not see a key; undefined when the block sees all.
  Tensor band_mask(const Block& b) const {
    const Band& band = sample_.band;
    const int64_t last_row = b.row + b.rows - 1;
    if (b.row + band.after >= b.key + b.keys - 1 && last_row - band.before <= b.key) return Tensor();
    const Tensor columns = positions(b.key, b.keys).unsqueeze(0);
    const Tensor ahead = columns.sub(positions(b.row, b.rows).unsqueeze(1));
    Tensor masked = ahead.gt(band.after).logical_or_(ahead.lt(-band.before));
    if (band.prefix > 0) masked.logical_and_(columns.ge(band.prefix));
    return masked;
  }

  const AttentionSample& sample_;
  const AttentionTerms& terms_;
  at::ScalarType type_;
  int64_t batch_, heads_, kv_heads_, queries_, keys_;
  Tensor k_, v_;  // (B * Nkv, Skv, D), contiguous, in the compute type
};

// The same terms for the kernel that never makes scores as tensors, or nothing where it lacks one of them: dropout,
// slopes, sinks, prefixes, and gradients of a bias.
std::optional<fused::AttentionInputs> for_kernel(const AttentionSample& sample, const AttentionTerms& terms) {
  const bool slopes = terms.bias_kind == Bias::kSlope || terms.bias_kind == Bias::kSlopeSqrt;
  if (slopes || terms.keep_probability < 1 || terms.sink.defined() || sample.band.prefix > 0) return std::nullopt;
  const int64_t queries = sample.q.size(2), keys = sample.k.size(2), batch = sample.q.size(0);
  // As four dimensions, cut to the entries of the sample.
  const auto part = [&](const Tensor& t) {
    if (!t.defined()) return Tensor();
    Tensor four = t.dim() == 2 ? t.unsqueeze(0).unsqueeze(0) : t;
    if (four.size(0) > 1) four = four.narrow(0, sample.batch, batch);
    if (four.size(2) > 1) four = four.narrow(2, 0, queries);
    return four.narrow(3, 0, keys);
  };
  fused::AttentionInputs inputs{.q = sample.q,
                                .k = sample.k,
                                .v = sample.v,
                                .scale = terms.scale,
                                .before = sample.band.before,
                                .after = sample.band.after,
                                .masked = part(terms.mask),
                                .bias = part(terms.bias),
                                .bias_scale = terms.bias_kind == Bias::kBeforeScale ? terms.scale : 1.0};
  return fused::takes_attention(inputs) ? std::optional(inputs) : std::nullopt;
}

// Whether the sample's part of a (B or 1, N or 1, Sq or 1, Skv) or (Sq or 1, Skv) tensor is there.
bool covers(const Tensor& t, const AttentionSample& s) {
  if (!t.defined()) return true;
  const bool whole = t.dim() == 2 || (t.dim() == 4 && (t.size(0) == 1 || t.size(0) >= s.batch + s.q.size(0)) &&
                                      (t.size(1) == 1 || t.size(1) == s.q.size(1)));
  return whole && (t.size(-2) == 1 || t.size(-2) >= s.q.size(2)) && t.size(-1) >= s.k.size(2);
}

// What the operators' layouts do not see: lengths of sequences, paged caches.
void check(const AttentionSample& s, const AttentionTerms& terms) {
  const Tensor &q = s.q, &k = s.k, &v = s.v;
  CANN_CHECK_OP(k.size(1) > 0 && q.size(1) % k.size(1) == 0 && q.size(3) == k.size(3) && q.size(0) == k.size(0) &&
                    k.sizes().slice(0, 3).equals(v.sizes().slice(0, 3)),
                "attention: query (B, N, Sq, D), key (B, Nkv, Skv, D) and value (B, Nkv, Skv, Dv) must agree, with N a "
                "multiple of Nkv, but are ",
                q.sizes(), ", ", k.sizes(), " and ", v.sizes());
  CANN_CHECK_OP(covers(terms.mask, s), "attention: atten_mask must be (Sq, Skv) or (B or 1, N or 1, Sq, Skv), but has ",
                "sizes ", terms.mask.sizes(), " for batch entry ", s.batch, " with query ", q.sizes(), " and key ",
                k.sizes());
  const bool per_element = terms.bias_kind == Bias::kAfterScale || terms.bias_kind == Bias::kBeforeScale;
  CANN_CHECK_OP(!per_element || covers(terms.bias, s), "attention: pse must be (B or 1, N, Sq or 1, Skv), but has ",
                "sizes ", terms.bias.sizes(), " for batch entry ", s.batch, " with query ", q.sizes(), " and key ",
                k.sizes());
}

}  // namespace

int64_t batch_entries_per_sample(int64_t heads, int64_t keys) {
  return std::max<int64_t>(1, kScoreBudget / (kUsefulRows * std::max<int64_t>(1, heads * keys)));
}

void attention_forward(const AttentionSample& sample, const AttentionTerms& terms, const Tensor& out,
                       const Tensor& maximum, const Tensor& sum) {
  check(sample, terms);
  if (const auto inputs = for_kernel(sample, terms);
      inputs.has_value() && out.stride(3) == 1 && out.scalar_type() == sample.q.scalar_type()) {
    const Tensor first_maximum = maximum.select(3, 0), first_sum = sum.select(3, 0);
    fused::attention_forward(*inputs, out, {.maximum = first_maximum, .sum = first_sum});
    maximum.copy_(first_maximum.unsqueeze(3).clone().expand_as(maximum));
    sum.copy_(first_sum.unsqueeze(3).clone().expand_as(sum));
    return;
  }
  const BlockPass pass(sample, terms);
  pass.for_each_block([&](const Block& b) {
    const Tensor out_rows = out.narrow(2, b.row, b.rows);
    const Tensor max_rows = maximum.narrow(2, b.row, b.rows), sum_rows = sum.narrow(2, b.row, b.rows);
    if (b.keys == 0) {
      out_rows.zero_();
      max_rows.fill_(std::numeric_limits<float>::lowest());
      sum_rows.zero_();
      return;
    }
    Tensor p = pass.scores(b, pass.folded_queries(b));
    Tensor m = p.amax(-1, /*keepdim=*/true).clamp_min_(std::numeric_limits<float>::lowest());
    if (terms.sink.defined()) m = at::maximum(m, pass.sink());
    p.sub_(m).exp_();
    Tensor l = p.sum(-1, /*keepdim=*/true);
    if (terms.sink.defined()) l.add_(pass.sink().sub(m).exp_());
    if (pass.drops()) pass.drop(b, p);
    // A row that sees a key sums to at least 1: the clamp is for the others, whose numerator is 0.
    const Tensor weights = pass.fold(p);
    const Tensor o = pass.unfold(at::bmm(weights, pass.values(b)), b.rows);
    out_rows.copy_(o.div(l.clamp_min(std::numeric_limits<float>::min()).mul_(terms.keep_probability)));
    max_rows.copy_(m.expand_as(max_rows));
    sum_rows.copy_(l.expand_as(sum_rows));
  });
}

void attention_backward(const AttentionSample& sample, const AttentionTerms& terms, const Tensor& d_out,
                        const Tensor& out, const Tensor& maximum, const Tensor& sum, const AttentionGradients& grads) {
  check(sample, terms);
  const auto whole_rows = [&](const Tensor& t) {
    const Tensor same = t.to(sample.q.scalar_type());
    return same.stride(3) == 1 ? same : same.contiguous();
  };
  const bool writable = grads.q.stride(3) == 1 && grads.k.stride(3) == 1 && grads.v.stride(3) == 1;
  if (const auto inputs = for_kernel(sample, terms); inputs.has_value() && writable && !grads.bias.defined()) {
    const Tensor m = maximum.select(3, 0), l = sum.select(3, 0);
    const Tensor log_sum = at::where(l == 0, std::numeric_limits<double>::infinity(), l.log() + m);
    fused::attention_backward(*inputs, whole_rows(out), whole_rows(d_out), log_sum, grads.q, grads.k, grads.v);
    return;
  }
  const BlockPass pass(sample, terms);
  const auto type = compute_type(sample.q);
  const int64_t folded = sample.k.size(0) * sample.k.size(1);
  Tensor dk = at::zeros({folded, sample.k.size(2), sample.k.size(3)}, type);
  Tensor dv = at::zeros({folded, sample.v.size(2), sample.v.size(3)}, type);
  pass.for_each_block([&](const Block& b) {
    const auto rows = [&](const Tensor& t) { return t.narrow(2, b.row, b.rows); };
    const Tensor g = rows(d_out).to(type);
    const Tensor delta = g.mul(rows(out)).sum(-1, /*keepdim=*/true);  // (B, N, rows, 1)
    const Tensor m = rows(maximum).narrow(-1, 0, 1).to(type);
    const Tensor l = rows(sum).narrow(-1, 0, 1).to(type).clamp_min(std::numeric_limits<float>::min());
    if (grads.sink.defined()) {
      grads.sink.sub_(pass.sink().sub(m).exp_().div_(l).mul_(delta).sum({0, 2, 3}));
    }
    if (b.keys == 0) {
      rows(grads.q).zero_();
      return;
    }
    const Tensor queries = pass.folded_queries(b), folded_g = pass.fold(g);
    Tensor p = pass.scores(b, queries).sub_(m).exp_().div_(l);
    Tensor ds = pass.unfold(at::bmm(folded_g, pass.values(b).transpose(1, 2)), b.rows);
    if (pass.drops()) {
      Tensor kept = p.clone();
      pass.drop(b, kept);
      kept.div_(terms.keep_probability);
      dv.narrow(1, b.key, b.keys).baddbmm_(pass.fold(kept).transpose(1, 2), folded_g);
      // p * keep / keep_probability * dp, less p * delta
      ds.mul_(kept).sub_(p.mul_(delta));
    } else {
      dv.narrow(1, b.key, b.keys).baddbmm_(pass.fold(p).transpose(1, 2), folded_g);
      ds.sub_(delta).mul_(p);
    }
    if (grads.bias.defined()) {
      const Tensor target = pass.slice(grads.bias, b);
      target.add_(at::sum_to(ds, target.sizes()), terms.bias_kind == Bias::kBeforeScale ? terms.scale : 1.0);
    }
    const Tensor folded_ds = pass.fold(ds);
    dk.narrow(1, b.key, b.keys).baddbmm_(folded_ds.transpose(1, 2), queries);
    rows(grads.q).copy_(pass.unfold(at::bmm(folded_ds, pass.keys(b)), b.rows).mul_(terms.scale));
  });
  grads.k.copy_(dk.view(sample.k.sizes()));
  grads.v.copy_(dv.view(sample.v.sizes()));
}

}  // namespace cann::aten::npu
