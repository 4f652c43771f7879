#include "aten/npu/attention_layout.h"

#include <algorithm>

namespace cann::aten::npu {
namespace {

// Compressed masks of the sparse modes, in the sizes that the hardware wants.
constexpr int64_t kCompressedRows = 2048, kPrefixRows = 3072;

bool is_pattern(int64_t mode) { return mode == 2 || mode == 3 || mode == 4 || mode >= 6; }

// Callers write "no limit" as the largest 32 or 64-bit integer.
int64_t limited(int64_t tokens) { return std::clamp(tokens, -Band::kUnlimited, Band::kUnlimited); }

Band band_from_corner(const SparsePattern& pattern, int64_t shift) {
  return {.before = limited(pattern.pre_tokens) - shift, .after = limited(pattern.next_tokens) + shift};
}

// The band of a sample; `shift` = Skv - Sq moves the origin to the bottom right.
Band band_of(const SparsePattern& pattern, int64_t shift, bool has_mask, int64_t prefix, bool is_edge_sample) {
  switch (pattern.mode) {
    case 0:  // without a mask the tokens are ignored
      return has_mask ? band_from_corner(pattern, 0) : Band{};
    case 2:
      return {.after = 0};
    case 3:
      return {.after = shift};
    case 4:
      return band_from_corner(pattern, shift);
    case 6:
      return {.after = shift, .prefix = prefix};
    case 7:  // the last sample is cut off the end of a longer one, so its band starts elsewhere
      return is_edge_sample ? band_from_corner(pattern, shift) : Band{.after = shift};
    case 8:  // the first one
      return is_edge_sample ? band_from_corner(pattern, shift) : Band{.after = 0};
    default:  // 1 and 5: the mask says it all
      return {};
  }
}

void check_pattern(const SparsePattern& pattern, AttentionLayout layout, bool has_mask, int64_t samples,
                   const char* op) {
  CANN_CHECK_OP(pattern.mode >= 0 && pattern.mode <= 8, op, ": sparse_mode must be from 0 to 8, but got ",
                pattern.mode);
  CANN_CHECK_OP(pattern.mode == 0 || has_mask, op, ": sparse_mode ", pattern.mode, " needs atten_mask",
                is_pattern(pattern.mode) ? ", the compressed mask of 2048 x 2048 (3072 x 2048 for mode 6)" : "");
  CANN_CHECK_OP(pattern.mode < 7 || layout == AttentionLayout::kTND, op, ": sparse_mode ", pattern.mode,
                " is for input_layout TND only");
  if (pattern.mode == 5 || pattern.mode == 6) {
    CANN_CHECK_OP(pattern.prefix.has_value() && static_cast<int64_t>(pattern.prefix->size()) == samples, op,
                  ": sparse_mode ", pattern.mode, " needs prefix, one length for each of the ", samples,
                  " batch entries");
  }
}

std::vector<PlacedSample> uniform_samples(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const SparsePattern& pattern, bool has_mask) {
  const int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), keys = k.size(2);
  const int64_t step = pattern.mode == 6 ? 1 : batch_entries_per_sample(heads, keys);
  std::vector<PlacedSample> samples;
  for (int64_t b = 0; b < batch; b += step) {
    const int64_t count = std::min(step, batch - b);
    const int64_t prefix = pattern.mode == 6 ? (*pattern.prefix)[static_cast<size_t>(b)] : 0;
    samples.push_back({.sample = {.q = q.narrow(0, b, count),
                                  .k = k.narrow(0, b, count),
                                  .v = v.narrow(0, b, count),
                                  .band = band_of(pattern, keys - queries, has_mask, prefix, false),
                                  .batch = b,
                                  .mask_base = b * heads * queries * keys},
                       .batch_begin = b,
                       .batch_count = count});
  }
  return samples;
}

void check_lengths(IntArrayRef ends, int64_t total, const char* name, const char* op) {
  int64_t previous = 0;
  for (const int64_t end : ends) {
    CANN_CHECK_OP(end >= previous, op, ": ", name, " must be cumulated lengths, but it falls from ", previous, " to ",
                  end);
    previous = end;
  }
  CANN_CHECK_OP(previous <= total, op, ": ", name, " ends at ", previous, ", but the packed dimension has ", total,
                " rows");
}

std::vector<PlacedSample> packed_samples(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const SparsePattern& pattern, const SequenceLengths& lengths, bool has_mask) {
  const IntArrayRef q_ends = *lengths.queries, k_ends = *lengths.keys;
  // Modes 7 and 8 treat the last, or first, sample that is not empty differently.
  int64_t edge = -1;
  for (size_t b = 0; b < q_ends.size(); ++b) {
    const bool empty = q_ends[b] == (b == 0 ? 0 : q_ends[b - 1]);
    if (!empty && (pattern.mode == 7 || edge < 0)) edge = static_cast<int64_t>(b);
  }
  std::vector<PlacedSample> samples;
  int64_t row = 0, key = 0, elements = 0;
  for (size_t b = 0; b < q_ends.size(); ++b) {
    const int64_t queries = q_ends[b] - row, keys = k_ends[b] - key;
    const int64_t prefix = pattern.mode == 6 ? (*pattern.prefix)[b] : 0;
    samples.push_back(
        {.sample = {.q = q.narrow(2, row, queries),
                    .k = k.narrow(2, key, keys),
                    .v = v.narrow(2, key, keys),
                    .band = band_of(pattern, keys - queries, has_mask, prefix, static_cast<int64_t>(b) == edge),
                    .batch = static_cast<int64_t>(b),
                    .mask_base = elements},
         .batch_count = 1,
         .row_begin = row,
         .key_begin = key});
    elements += q.size(1) * queries * keys;
    row = q_ends[b];
    key = k_ends[b];
  }
  return samples;
}

}  // namespace

AttentionLayout attention_layout(std::string_view name, const char* op) {
  if (name == "BSH") return AttentionLayout::kBSH;
  if (name == "SBH") return AttentionLayout::kSBH;
  if (name == "BSND") return AttentionLayout::kBSND;
  if (name == "BNSD") return AttentionLayout::kBNSD;
  if (name == "TND") return AttentionLayout::kTND;
  CANN_CHECK_OP(false, op, ": input_layout must be one of BSH, SBH, BSND, BNSD and TND, but got '", name, "'");
}

Tensor as_bnsd(const Tensor& t, AttentionLayout layout, int64_t heads) {
  switch (layout) {
    case AttentionLayout::kBSH:
      return t.unflatten(2, {heads, -1}).transpose(1, 2);
    case AttentionLayout::kSBH:
      return t.unflatten(2, {heads, -1}).permute({1, 2, 0, 3});
    case AttentionLayout::kBSND:
      return t.transpose(1, 2);
    case AttentionLayout::kBNSD:
      return t;
    case AttentionLayout::kTND:
      return t.transpose(0, 1).unsqueeze(0);
  }
  return t;
}

AttentionSizes attention_sizes(const Tensor& query, const Tensor& key, const Tensor& value, SymInt heads,
                               AttentionLayout layout, const char* op) {
  const bool three =
      layout == AttentionLayout::kBSH || layout == AttentionLayout::kSBH || layout == AttentionLayout::kTND;
  for (const Tensor* t : {&query, &key, &value}) {
    CANN_CHECK_OP(t->dim() == (three ? 3 : 4), op, ": query, key and value of this input_layout must have ",
                  three ? 3 : 4, " dimensions, but one has sizes ", t->sym_sizes());
  }
  CANN_CHECK_OP(heads > 0, op, ": head_num must be positive, but got ", heads);
  AttentionSizes s;
  s.heads = heads;
  const auto flat = [&](int64_t batch_dim, int64_t length_dim) {
    CANN_CHECK_OP(query.sym_size(2) % heads == 0, op, ": the hidden size ", query.sym_size(2),
                  " of query must be divisible by head_num ", heads);
    s.batch = query.sym_size(batch_dim), s.queries = query.sym_size(length_dim), s.keys = key.sym_size(length_dim);
    s.head_size = query.sym_size(2) / heads;
    CANN_CHECK_OP(s.head_size > 0 && key.sym_size(2) % s.head_size == 0, op, ": the hidden size ", key.sym_size(2),
                  " of key must be a multiple of query's head size ", s.head_size);
    s.kv_heads = key.sym_size(2) / s.head_size;
    CANN_CHECK_OP(s.kv_heads > 0 && value.sym_size(2) % s.kv_heads == 0, op, ": the hidden size ", value.sym_size(2),
                  " of value must be divisible by the ", s.kv_heads, " heads of key");
    s.value_size = value.sym_size(2) / s.kv_heads;
  };
  const auto split = [&](SymInt batch, int64_t head_dim, int64_t length_dim) {
    CANN_CHECK_OP(query.sym_size(head_dim) == heads, op, ": query has ", query.sym_size(head_dim),
                  " heads, but head_num is ", heads);
    s.batch = std::move(batch), s.queries = query.sym_size(length_dim), s.keys = key.sym_size(length_dim);
    s.head_size = query.sym_size(-1), s.kv_heads = key.sym_size(head_dim), s.value_size = value.sym_size(-1);
    CANN_CHECK_OP(key.sym_size(-1) == s.head_size, op, ": query has head size ", s.head_size, ", but key ",
                  key.sym_size(-1));
  };
  int64_t length_dim = 1, batch_dim = 0;
  switch (layout) {
    case AttentionLayout::kBSH:
      flat(0, 1);
      break;
    case AttentionLayout::kSBH:
      batch_dim = 1, length_dim = 0;
      flat(1, 0);
      break;
    case AttentionLayout::kBSND:
      split(query.sym_size(0), 2, 1);
      break;
    case AttentionLayout::kBNSD:
      length_dim = 2;
      split(query.sym_size(0), 1, 2);
      break;
    case AttentionLayout::kTND:
      batch_dim = -1, length_dim = 0;
      split(1, 1, 0);
      break;
  }
  CANN_CHECK_OP(s.kv_heads > 0 && heads % s.kv_heads == 0, op, ": the ", heads,
                " heads of query must be a multiple of the ", s.kv_heads, " of key");
  CANN_CHECK_OP(value.sym_size(length_dim) == s.keys, op, ": key and value must have the same length, but have ",
                s.keys, " and ", value.sym_size(length_dim));
  CANN_CHECK_OP(batch_dim < 0 || (key.sym_size(batch_dim) == s.batch && value.sym_size(batch_dim) == s.batch), op,
                ": query, key and value must have the same batch size, but have ", s.batch, ", ",
                key.sym_size(std::max<int64_t>(batch_dim, 0)), " and ",
                value.sym_size(std::max<int64_t>(batch_dim, 0)));
  return s;
}

std::vector<PlacedSample> attention_samples(const Tensor& q, const Tensor& k, const Tensor& v, AttentionLayout layout,
                                            const SparsePattern& pattern, const SequenceLengths& lengths, bool has_mask,
                                            const char* op) {
  if (layout != AttentionLayout::kTND) {
    check_pattern(pattern, layout, has_mask, q.size(0), op);
    return uniform_samples(q, k, v, pattern, has_mask);
  }
  CANN_CHECK_OP(lengths.queries.has_value() && lengths.keys.has_value(), op,
                ": input_layout TND needs actual_seq_qlen and actual_seq_kvlen, the cumulated lengths of the samples");
  CANN_CHECK_OP(lengths.queries->size() == lengths.keys->size(), op, ": actual_seq_qlen has ", lengths.queries->size(),
                " samples, but actual_seq_kvlen ", lengths.keys->size());
  check_lengths(*lengths.queries, q.size(2), "actual_seq_qlen", op);
  check_lengths(*lengths.keys, k.size(2), "actual_seq_kvlen", op);
  check_pattern(pattern, layout, has_mask, static_cast<int64_t>(lengths.queries->size()), op);
  return packed_samples(q, k, v, pattern, lengths, has_mask);
}

Tensor elementwise_mask(const OptionalTensor& mask, const SparsePattern& pattern, const AttentionSizes& sizes,
                        AttentionLayout layout, const char* op) {
  if (!has(mask)) return Tensor();
  CANN_CHECK_OP(mask->scalar_type() == at::kBool || mask->scalar_type() == at::kByte, op,
                ": atten_mask must be bool or uint8, true where a score is masked, but is ", mask->scalar_type());
  if (is_pattern(pattern.mode)) {
    const int64_t rows = pattern.mode == 6 ? kPrefixRows : kCompressedRows;
    CANN_CHECK_OP(mask->dim() >= 2 && mask->numel() == rows * kCompressedRows && mask->size(-1) == kCompressedRows, op,
                  ": atten_mask of sparse_mode ", pattern.mode, " must be the compressed mask (", rows, ", ",
                  kCompressedRows, "), but has sizes ", mask->sizes());
    return Tensor();
  }
  CANN_CHECK_OP(mask->dim() == 2 || mask->dim() == 4, op,
                ": atten_mask must be (Sq, Skv) or (B or 1, N or 1, Sq, Skv), but has sizes ", mask->sizes());
  if (layout != AttentionLayout::kTND) {
    const auto fits = [&](int64_t dim, const SymInt& size) {
      return mask->size(dim) == 1 || mask->size(dim) == size.expect_int();
    };
    CANN_CHECK_OP(mask->size(-1) == sizes.keys.expect_int() && fits(-2, sizes.queries) &&
                      (mask->dim() == 2 || (fits(0, sizes.batch) && fits(1, sizes.heads))),
                  op, ": atten_mask of sparse_mode ", pattern.mode, " must be (", sizes.queries, ", ", sizes.keys,
                  ") or (", sizes.batch, " or 1, ", sizes.heads, " or 1, ", sizes.queries, ", ", sizes.keys,
                  "), but has sizes ", mask->sizes());
  }
  return mask->to(at::kBool);
}

int64_t dropout_elements(const std::vector<PlacedSample>& samples) {
  int64_t elements = 0;
  for (const PlacedSample& s : samples) {
    elements += s.sample.q.size(0) * s.sample.q.size(1) * s.sample.q.size(2) * s.sample.k.size(2);
  }
  return elements;
}

}  // namespace cann::aten::npu
