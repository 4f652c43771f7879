// Operators along a sequence: a causal convolution per channel, and the gated delta rule of linear attention.

#include "aten/npu/families.h"
#include "aten/npu/host_values.h"
#include "aten/npu/registry.h"

namespace cann::aten::npu {
namespace {

// ---- y[s] = sum over w of weight[w] * x[s - (W - 1) + w], masked positions zero. x (S, B, H), weight (W, H), mask (B,
// S)

Tensor masked(const Tensor& x, const OptionalTensor& mask) {
  return has(mask) ? x.mul(mask->to(at::kBool).transpose(0, 1).unsqueeze(-1)) : x;
}

void check_convolution(const Tensor& x, const Tensor& weight) {
  CANN_CHECK_OP(x.dim() == 3 && weight.dim() == 2 && x.sym_size(2) == weight.sym_size(1),
                "npu_masked_causal_conv1d: input must be (S, B, H) and weight (W, H), but have ", x.sym_sizes(),
                " and ", weight.sym_sizes());
}

Tensor masked_causal_conv1d(const Tensor& input, const Tensor& weight, const OptionalTensor& mask) {
  check_convolution(input, weight);
  const Tensor x = wide(input), w = wide(weight);
  const int64_t taps = weight.size(0);
  Tensor y = x.mul(w.select(0, taps - 1));
  for (int64_t back = 1; back < std::min(taps, x.size(0)); ++back) {
    const int64_t rows = x.size(0) - back;
    y.narrow(0, back, rows).add_(x.narrow(0, 0, rows).mul(w.select(0, taps - 1 - back)));
  }
  return masked(y, mask).to(input.scalar_type());
}

std::tuple<Tensor, Tensor> masked_causal_conv1d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                         const OptionalTensor& mask) {
  check_convolution(input, weight);
  const Tensor g = masked(wide(grad), mask), x = wide(input), w = wide(weight);
  const int64_t taps = weight.size(0);
  Tensor dx = g.mul(w.select(0, taps - 1)), dw = at::zeros_like(w);
  for (int64_t back = 0; back < std::min(taps, x.size(0)); ++back) {
    const int64_t rows = x.size(0) - back;
    const Tensor later = g.narrow(0, back, rows);
    if (back > 0) dx.narrow(0, 0, rows).add_(later.mul(w.select(0, taps - 1 - back)));
    dw.select(0, taps - 1 - back).copy_(later.mul(x.narrow(0, 0, rows)).sum({0, 1}));
  }
  return {dx.to(input.scalar_type()), dw.to(weight.scalar_type())};
}
Tensor convolution_shape(const Tensor& input, const Tensor& weight, const OptionalTensor&) {
  check_convolution(input, weight);
  return at::empty_like(input, at::MemoryFormat::Contiguous);
}
std::tuple<Tensor, Tensor> convolution_backward_shape(const Tensor&, const Tensor& input, const Tensor& weight,
                                                      const OptionalTensor&) {
  return {at::empty_like(input, at::MemoryFormat::Contiguous), at::empty_like(weight, at::MemoryFormat::Contiguous)};
}
variable_list masked_causal_conv1d_derivative(Context<masked_causal_conv1d>& c) {
  auto [dx, dw] = Operator<"npu_masked_causal_conv1d_backward", masked_causal_conv1d_backward>::call(
      c.grad(0), c.input<0>(), c.input<1>(), c.input<2>());
  return {dx, dw, Tensor()};
}

// ---- The gated delta rule, token by token
//
//   S = S * exp(g);  S = S + beta * (v - S k) k^T;  o = scale * S q
//
// query, key (T, Nk, Dk), value (T, Nv, Dv), state (slots, Nv, Dv, Dk), g and beta (T, Nv). The state after token t is
// kept in slot ssm_state_indices[t]; a sequence starts from the slot of its last accepted token.

using Numbers = std::vector<int64_t>;

// A slot for each token, and no token outside of the sequences.
void check_delta_rule_lengths(const Numbers& counts, const Numbers& slot_of, const Numbers& taken, int64_t tokens,
                              int64_t slots, const char* op) {
  CANN_CHECK_OP(static_cast<int64_t>(slot_of.size()) == tokens, op, ": ssm_state_indices must name a slot for each of ",
                "the ", tokens, " tokens, but has ", slot_of.size());
  for (const int64_t slot : slot_of) {
    CANN_CHECK_OP(slot >= 0 && slot < slots, op, ": ssm_state_indices has ", slot, ", but state has ", slots, " slots");
  }
  CANN_CHECK_OP(taken.empty() || taken.size() == counts.size(), op, ": num_accepted_tokens must have one number for ",
                "each of the ", counts.size(), " sequences of actual_seq_lengths, but has ", taken.size());
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    CANN_CHECK_OP(counts[i] >= 0 && counts[i] <= tokens - total, op, ": actual_seq_lengths has ", counts[i],
                  " for sequence ", i, ", where ", tokens - total, " of ", tokens, " tokens are left");
    CANN_CHECK_OP(taken.empty() || (taken[i] >= 1 && taken[i] <= std::max<int64_t>(counts[i], 1)), op,
                  ": num_accepted_tokens must be from 1 to the sequence's ", counts[i], " tokens, but is ",
                  taken.empty() ? 0 : taken[i]);
    total += counts[i];
  }
}

Tensor& delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, Tensor& state, Tensor& out,
                   const OptionalTensor& beta, std::optional<double> scale, const OptionalTensor& lengths,
                   const OptionalTensor& slots, const OptionalTensor& accepted, const OptionalTensor& g,
                   const OptionalTensor& gk) {
  constexpr const char* kOp = "npu_recurrent_gated_delta_rule";
  CANN_CHECK_SUPPORTED(!has(gk), kOp, ": gk is not implemented");
  CANN_CHECK_OP(query.dim() == 3 && key.sizes() == query.sizes() && value.dim() == 3 &&
                    value.size(0) == query.size(0) && state.dim() == 4 && key.size(1) > 0 &&
                    value.size(1) % key.size(1) == 0,
                kOp,
                ": query and key must be (T, Nk, Dk), value (T, Nv, Dv) with Nv a multiple of Nk and state (slots, "
                "Nv, Dv, Dk), but have ",
                query.sizes(), ", ", key.sizes(), ", ", value.sizes(), " and ", state.sizes());
  CANN_CHECK_OP(has(lengths) && has(slots), kOp, ": actual_seq_lengths and ssm_state_indices are needed");
  const auto counts = integers_of(*lengths), slot_of = integers_of(*slots);
  const auto taken = has(accepted) ? integers_of(*accepted) : std::vector<int64_t>();
  check_delta_rule_lengths(counts, slot_of, taken, query.size(0), state.size(0), kOp);
  const auto type = compute_type(query);
  const int64_t group = value.size(1) / key.size(1);
  const Tensor q = query.to(type).mul(scale.value_or(1 / std::sqrt(static_cast<double>(key.size(2)))));
  const Tensor queries = q.repeat_interleave(group, 1), keys = key.to(type).repeat_interleave(group, 1);
  const Tensor v = value.to(type);
  const Tensor decay = has(g) ? g->to(type).exp() : Tensor(), step = has(beta) ? beta->to(type) : Tensor();
  int64_t token = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const int64_t first = taken.empty() ? token : token + taken[i] - 1;
    Tensor s = state.select(0, slot_of[static_cast<size_t>(first)]).to(type, false, /*copy=*/true);
    for (const int64_t end = token + counts[i]; token < end; ++token) {
      const Tensor k = keys.select(0, token).unsqueeze(1);  // (Nv, 1, Dk)
      if (decay.defined()) s.mul_(decay.select(0, token).reshape({-1, 1, 1}));
      Tensor error = v.select(0, token).sub(s.mul(k).sum(-1));
      if (step.defined()) error.mul_(step.select(0, token).unsqueeze(-1));
      s.add_(error.unsqueeze(-1).mul(k));
      state.select(0, slot_of[static_cast<size_t>(token)]).copy_(s);
      out.select(0, token).copy_(s.mul(queries.select(0, token).unsqueeze(1)).sum(-1));
    }
  }
  return out;
}

Tensor recurrent_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, Tensor& state,
                            const OptionalTensor& beta, std::optional<double> scale, const OptionalTensor& lengths,
                            const OptionalTensor& slots, const OptionalTensor& accepted, const OptionalTensor& g,
                            const OptionalTensor& gk) {
  Tensor out = at::zeros(value.sizes(), value.options());
  return delta_rule(query, key, value, state, out, beta, scale, lengths, slots, accepted, g, gk);
}
Tensor recurrent_shape(const Tensor&, const Tensor&, const Tensor& value, Tensor&, const OptionalTensor&,
                       std::optional<double>, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                       const OptionalTensor&, const OptionalTensor&) {
  return at::empty_like(value, at::MemoryFormat::Contiguous);
}
std::tuple<Tensor, Tensor> functional_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value,
                                                 const Tensor& state, const OptionalTensor& beta,
                                                 std::optional<double> scale, const OptionalTensor& lengths,
                                                 const OptionalTensor& slots, const OptionalTensor& accepted,
                                                 const OptionalTensor& g, const OptionalTensor& gk) {
  Tensor next = state.clone();
  Tensor out = recurrent_delta_rule(query, key, value, next, beta, scale, lengths, slots, accepted, g, gk);
  return {out, next};
}
std::tuple<Tensor, Tensor> functional_shape(const Tensor&, const Tensor&, const Tensor& value, const Tensor& state,
                                            const OptionalTensor&, std::optional<double>, const OptionalTensor&,
                                            const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                            const OptionalTensor&) {
  return {at::empty_like(value, at::MemoryFormat::Contiguous), at::empty_like(state)};
}

}  // namespace

void register_recurrence(Registry& ops) {
  ops.add<"npu_masked_causal_conv1d", masked_causal_conv1d, convolution_shape>(
         "(Tensor input, Tensor weight, *, Tensor? mask=None) -> Tensor")
      .autograd<masked_causal_conv1d_derivative, Saves<0, 1, 2>>();
  ops.add<"npu_masked_causal_conv1d_backward", masked_causal_conv1d_backward, convolution_backward_shape>(
      "(Tensor grad_output, Tensor input, Tensor weight, *, Tensor? mask=None) -> (Tensor, Tensor)");
  ops.add<"npu_recurrent_gated_delta_rule", recurrent_delta_rule, recurrent_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor(a!) state, *, Tensor? beta=None, float? scale=None, Tensor? "
      "actual_seq_lengths=None, Tensor? ssm_state_indices=None, Tensor? num_accepted_tokens=None, Tensor? g=None, "
      "Tensor? gk=None) -> Tensor");
  ops.add<"npu_recurrent_gated_delta_rule_functional", functional_delta_rule, functional_shape>(
      "(Tensor query, Tensor key, Tensor value, Tensor state, *, Tensor? beta=None, float? scale=None, Tensor? "
      "actual_seq_lengths=None, Tensor? ssm_state_indices=None, Tensor? num_accepted_tokens=None, Tensor? g=None, "
      "Tensor? gk=None) -> (Tensor, Tensor)");
}

}  // namespace cann::aten::npu
