// What serving engines run around attention: merging partial results, writing the paged cache, filtering logits.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

// ---- Parts of one attention, each with the logarithm of its sum of exponentials, made whole

void check_parts(TensorList lse, TensorList parts, int64_t update_type) {
  constexpr const char* kOp = "npu_attention_update";
  CANN_CHECK_OP(!lse.empty() && lse.size() == parts.size(), kOp,
                ": lse and local_out must be lists of the same length, at least 1, but have ", lse.size(), " and ",
                parts.size());
  CANN_CHECK_OP(update_type == 0 || update_type == 1, kOp, ": update_type must be 0 or 1, but got ", update_type);
}

std::tuple<Tensor, Tensor> attention_update(TensorList lse, TensorList parts, int64_t update_type) {
  check_parts(lse, parts, update_type);
  const Tensor each = wide(at::stack(lse));
  const Tensor whole = at::logsumexp(each, 0);
  Tensor out = at::zeros(parts[0].sizes(), parts[0].options().dtype(each.scalar_type()));
  for (size_t i = 0; i < parts.size(); ++i)
    out.addcmul_(parts[i].to(each.scalar_type()), each[static_cast<int64_t>(i)].sub(whole).exp_().unsqueeze(-1));
  return {out.to(parts[0].scalar_type()),
          update_type == 1 ? whole.to(lse[0].scalar_type()) : at::empty({0}, lse[0].options())};
}
std::tuple<Tensor, Tensor> attention_update_shape(TensorList lse, TensorList parts, int64_t update_type) {
  check_parts(lse, parts, update_type);
  return {at::empty_like(parts[0], at::MemoryFormat::Contiguous),
          update_type == 1 ? at::empty_like(lse[0], at::MemoryFormat::Contiguous) : empty_of(lse[0], {0})};
}

// ---- Keys and values (T, N, D) written to the slots of a paged cache; a negative slot is skipped
//
// The cache is (blocks, block, N, D) in mode Norm and (blocks, N * D / C, block, C) in mode PA_NZ.

void write_slots(const Tensor& rows, const Tensor& cache, const Tensor& slots, bool fractal) {
  constexpr const char* kOp = "npu_scatter_pa_kv_cache";
  CANN_CHECK_OP(rows.dim() == 3 && cache.dim() == 4 && slots.dim() == 1 && slots.size(0) == rows.size(0), kOp,
                ": key and value must be (T, N, D), the caches have 4 dimensions and slot_mapping T entries, but have ",
                rows.sizes(), ", ", cache.sizes(), " and ", slots.sizes());
  const Tensor target = fractal ? cache.transpose(1, 2) : cache;  // (blocks, block, a, b)
  CANN_CHECK_OP(target.size(2) * target.size(3) == rows.size(1) * rows.size(2), kOp, ": a row of ", rows.sizes(),
                " does not fill a slot of the cache ", cache.sizes());
  const Tensor kept = slots.ge(0).nonzero().squeeze(1);
  const Tensor slot = slots.to(at::kLong).index_select(0, kept);
  const Tensor values = rows.index_select(0, kept).reshape({-1, target.size(2), target.size(3)});
  c10::List<OptionalTensor> index;
  index.push_back(slot.div(target.size(1), "floor"));
  index.push_back(slot.remainder(target.size(1)));
  at::index_put_(const_cast<Tensor&>(target), index, values.to(cache.scalar_type()));
}

void scatter_cache(const Tensor& key, const Tensor& value, const Tensor& key_cache, const Tensor& value_cache,
                   const Tensor& slots, const OptionalTensor& compress_lens, const OptionalTensor& compress_offsets,
                   const OptionalTensor& seq_lens, std::optional<std::string_view> mode) {
  constexpr const char* kOp = "npu_scatter_pa_kv_cache";
  CANN_CHECK_SUPPORTED(!has(compress_lens) && !has(compress_offsets) && !has(seq_lens), kOp,
                       ": compress_lens, compress_seq_offsets and seq_lens are not implemented");
  const std::string_view layout = mode.value_or("PA_NZ");
  CANN_CHECK_OP(layout == "PA_NZ" || layout == "Norm", kOp, ": cache_mode must be PA_NZ or Norm, but got '", layout,
                "'");
  write_slots(key, key_cache, slots, layout == "PA_NZ");
  write_slots(value, value_cache, slots, layout == "PA_NZ");
}
void scatter_cache_shape(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                         std::optional<std::string_view>) {}

std::tuple<Tensor, Tensor> scattered_cache(const Tensor& key, const Tensor& value, const Tensor& key_cache,
                                           const Tensor& value_cache, const Tensor& slots,
                                           const OptionalTensor& compress_lens, const OptionalTensor& compress_offsets,
                                           const OptionalTensor& seq_lens, std::optional<std::string_view> mode) {
  std::tuple<Tensor, Tensor> next{key_cache.clone(), value_cache.clone()};
  scatter_cache(key, value, std::get<0>(next), std::get<1>(next), slots, compress_lens, compress_offsets, seq_lens,
                mode);
  return next;
}
std::tuple<Tensor, Tensor> scattered_cache_shape(const Tensor&, const Tensor&, const Tensor& key_cache,
                                                 const Tensor& value_cache, const Tensor&, const OptionalTensor&,
                                                 const OptionalTensor&, const OptionalTensor&,
                                                 std::optional<std::string_view>) {
  return {at::empty_like(key_cache), at::empty_like(value_cache)};
}

// ---- Logits below the k-th largest, and those outside the nucleus of probability p, become -inf. Equal logits at the
// k-th place are all kept, and so is the largest one whatever p is.

Tensor top_k_top_p(const Tensor& logits, const OptionalTensor& p, const OptionalTensor& k) {
  constexpr const char* kOp = "npu_top_k_top_p";
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  CANN_CHECK_OP(logits.dim() == 2, kOp, ": logits must have 2 dimensions, but have sizes ", logits.sizes());
  if (!has(p) && !has(k)) return logits.clone();
  auto [sorted, order] = logits.sort(/*stable=*/true, /*dim=*/1, /*descending=*/false);
  if (has(k)) {
    const Tensor place = k->to(at::kLong).clamp(1, logits.size(1)).neg().add(logits.size(1)).unsqueeze(1);
    sorted.masked_fill_(sorted.lt(sorted.gather(1, place)), kOut);
  }
  if (has(p)) {
    Tensor outside = wide(sorted).softmax(1).cumsum(1).le(p->to(compute_type(sorted)).neg().add(1).unsqueeze(1));
    outside.select(1, logits.size(1) - 1).fill_(false);
    sorted.masked_fill_(outside, kOut);
  }
  return at::empty_like(sorted, at::MemoryFormat::Contiguous).scatter_(1, order, sorted);
}
Tensor top_k_top_p_shape(const Tensor& logits, const OptionalTensor&, const OptionalTensor&) {
  return at::empty_like(logits, at::MemoryFormat::Contiguous);
}

}  // namespace

void register_serving(Registry& ops) {
  ops.add<"npu_attention_update", attention_update, attention_update_shape>(
      "(Tensor[] lse, Tensor[] local_out, int update_type) -> (Tensor, Tensor)");
  ops.add<"npu_scatter_pa_kv_cache", scatter_cache, scatter_cache_shape>(
      "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping, *, Tensor? "
      "compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, str? cache_mode='PA_NZ') -> ()");
  ops.add<"npu_scatter_pa_kv_cache_functional", scattered_cache, scattered_cache_shape>(
      "(Tensor key, Tensor value, Tensor key_cache, Tensor value_cache, Tensor slot_mapping, *, Tensor? "
      "compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, str? cache_mode='PA_NZ') -> "
      "(Tensor, Tensor)");
  ops.add<"npu_top_k_top_p", top_k_top_p, top_k_top_p_shape>(
      "(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor");
}

}  // namespace cann::aten::npu
