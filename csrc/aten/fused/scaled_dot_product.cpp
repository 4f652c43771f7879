// scaled_dot_product_attention's fused kernel on the npu, under the name of the CPU's, which attention.cpp chooses.
// Double, what has gaps between elements, and sizes at which ATen's kernel was measured faster go to that.

#include <algorithm>
#include <cmath>

#include "aten/fused/attention.h"
#include "aten/fused/native_kernel.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Forward = at::_ops::_scaled_dot_product_flash_attention_for_cpu;
using Backward = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;

constexpr int64_t kUnlimited = int64_t{1} << 40;

// Whether the packing of operands pays. Measured against ATen's kernel on two AVX-512 threads (with vector units for
// bfloat16), 4 x 8 heads of 64, by positions; by shapes and types only, so that a program chooses alike every time:
//   float32 forward         64: 0.87, causal 0.85   128: 0.90, causal 1.19   256: 1.03, causal 2.35   512: causal 1.67
//   bfloat16 forward        32: 0.96, causal 1.01    64: 1.36, causal 1.38   512: 1.47, causal 2.22
//   float32 with backward   64: 0.94, causal 0.93   128: 1.23, causal 1.40   256: 1.32, causal 1.06   512: causal 1.77
//   bfloat16 with backward  2.2 and more from 16 positions on
enum class Pass { kForward, kBackward };

bool pays(Pass pass, const Tensor& query, const Tensor& key, bool is_causal) {
  const int64_t positions = std::min(query.size(2), key.size(2));
  const bool is_float = query.scalar_type() == at::kFloat;
  if (pass == Pass::kBackward) return !is_float || positions >= 128;
  return is_float ? is_causal && positions >= 128 : positions >= 64;
}

// The arguments as the kernels take them, on aliases; an absent mask is undefined.
std::optional<fused::AttentionInputs> inputs_of(AliasScope& scope, Pass pass, const Tensor& query, const Tensor& key,
                                                const Tensor& value, double dropout_p, bool is_causal,
                                                const OptionalTensor& mask, std::optional<double> scale) {
  if (dropout_p != 0 || query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return std::nullopt;
  if (!pays(pass, query, key, is_causal)) return std::nullopt;
  fused::AttentionInputs inputs{.q = scope.alias(query),
                                .k = scope.alias(key),
                                .v = scope.alias(value),
                                .scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3)))),
                                .before = kUnlimited,
                                .after = is_causal ? 0 : kUnlimited};
  if (!fused::takes_attention(inputs)) return std::nullopt;
  if (mask.has_value() && mask->defined()) {
    const Tensor alias = scope.alias(*mask);
    if (is_causal || !alias.is_floating_point() || alias.is_neg() || alias.dim() < 2) return std::nullopt;
    Tensor bias = alias.to(at::kFloat);
    if (bias.size(-1) != key.size(2) || bias.stride(-1) != 1) {
      c10::SmallVector<int64_t, 4> whole_rows(bias.sizes());
      whole_rows.back() = key.size(2);
      bias = bias.expand(whole_rows).contiguous();
    }
    inputs.bias = bias.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  }
  return inputs;
}

std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                                   bool is_causal, const OptionalTensor& mask, std::optional<double> scale) {
  // ATen's kernel does not ask: it would read, and in the backward write, past the end of the shorter.
  TORCH_CHECK(key.size(-2) == value.size(-2), "Expected key and value of the same sequence length, but got shapes ",
              key.sizes(), " and ", value.sizes());
  {
    AliasScope scope;
    if (const auto inputs = inputs_of(scope, Pass::kForward, query, key, value, dropout_p, is_causal, mask, scale)) {
      scope.check_devices(Forward::name);
      AllocationRedirect redirect(scope.device());
      const Tensor& q = inputs->q;
      // In ATen's layouts, on which code that torch.compile generates relies.
      Tensor out = value.size(3) == q.size(3)
                       ? at::empty_like(q)
                       : at::empty({q.size(0), q.size(2), q.size(1), value.size(3)}, q.options()).transpose(1, 2);
      Tensor log_sum = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
      fused::attention_forward(*inputs, out, {.log_sum = log_sum});
      return {scope.wrap(std::move(out)), scope.wrap(std::move(log_sum))};
    }
  }
  return general<Forward>(query, key, value, dropout_p, is_causal, mask, scale);
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                                            const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                            double dropout_p, bool is_causal, const OptionalTensor& mask,
                                            std::optional<double> scale) {
  {
    AliasScope scope;
    if (const auto inputs = inputs_of(scope, Pass::kBackward, query, key, value, dropout_p, is_causal, mask, scale)) {
      const Tensor log_sum = scope.alias(logsumexp), result = scope.alias(out), gradient = scope.alias(grad_out);
      scope.check_devices(Backward::name);
      AllocationRedirect redirect(scope.device());
      const auto rows = [](const Tensor& t) { return t.stride(3) == 1 ? t : t.contiguous(); };
      const auto made = [](const Tensor& t) {
        return at::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, t.options()).transpose(1, 2);
      };
      Tensor dq = made(inputs->q), dk = made(inputs->k), dv = made(inputs->v);
      fused::attention_backward(*inputs, rows(result), rows(gradient), log_sum, dq, dk, dv);
      return {scope.wrap(std::move(dq)), scope.wrap(std::move(dk)), scope.wrap(std::move(dv))};
    }
  }
  return general<Backward>(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
}

}  // namespace

void register_fused_attention(torch::Library& aten) {
  register_native<Forward, &forward>(aten);
  register_native<Backward, &backward>(aten);
}

}  // namespace cann::aten
