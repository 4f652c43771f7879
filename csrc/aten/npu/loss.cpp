// Softmax with masks, and losses over logits. 16-bit logits are computed in float32.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

// ---- softmax(scale * x), masked entries replaced by -10000 before it

constexpr double kMaskedScore = -10000;

Tensor softmax_mask(const Tensor& x, const Tensor& mask, bool fixed_triu_mask) {
  if (fixed_triu_mask) {
    return at::ones_symint({x.sym_size(-2), x.sym_size(-1)}, x.options().dtype(at::kBool)).triu(1);
  }
  return mask.to(at::kBool);
}

Tensor scaled_masked_softmax(const Tensor& x, const Tensor& mask, const Scalar& scale, bool fixed_triu_mask) {
  const Tensor scores = wide(x).mul(scale).masked_fill_(softmax_mask(x, mask, fixed_triu_mask), kMaskedScore);
  return scores.softmax(-1).to(x.scalar_type());
}

// d/dscores of softmax, on tensors of the compute type.
Tensor softmax_gradient(const Tensor& grad, const Tensor& y, int64_t dim) {
  const Tensor weighted = grad.mul(y);
  return weighted.sub(y.mul(weighted.sum(dim, /*keepdim=*/true)));
}

Tensor scaled_masked_softmax_backward(const Tensor& y_grad, const Tensor& y, const Tensor& mask, const Scalar& scale,
                                      bool fixed_triu_mask) {
  return softmax_gradient(wide(y_grad), wide(y), -1)
      .mul_(scale)
      .masked_fill_(softmax_mask(y, mask, fixed_triu_mask), 0)
      .to(y.scalar_type());
}

variable_list scaled_masked_softmax_derivative(Context<scaled_masked_softmax>& c) {
  return {Operator<"npu_scaled_masked_softmax_backward", scaled_masked_softmax_backward>::call(
              c.grad(0), c.output<0>(), c.input<1>(), c.input<2>(), c.input<3>()),
          Tensor()};
}

// softmax(scale * x + mask + bias), x (B, W, N, S1, S2) or (B * W, N, S1, S2).
Tensor masked_softmax_with_rel_pos_bias(const Tensor& x, const OptionalTensor& atten_mask,
                                        const Tensor& relative_pos_bias, double scale_value, int64_t) {
  Tensor scores = wide(x).mul(scale_value);
  if (has(atten_mask)) scores = scores.add(*atten_mask);
  return scores.add(relative_pos_bias).softmax(-1).to(x.scalar_type());
}

Tensor& attn_softmax_(Tensor& input) { return input.copy_(wide(input).softmax(-1)); }
// Overwrites `input`, the softmax's result, with the gradient of its argument grad_output @ values^T.
Tensor& attn_softmax_backward_(Tensor& input, const Tensor& grad_output, const Tensor& values) {
  const Tensor grad = at::matmul(wide(grad_output), wide(values).transpose(-2, -1));
  return input.copy_(softmax_gradient(grad, wide(input), -1));
}

// ---- -sum(labels * log_softmax(input)) for each row; labels are distributions

Tensor softmax_cross_entropy(const Tensor& input, const Tensor& labels) {
  CANN_CHECK_OP(input.dim() == 2 && input.sym_sizes().equals(labels.sym_sizes()),
                "npu_softmax_cross_entropy_with_logits: input and labels must be (N, C) of the same sizes, but have ",
                input.sym_sizes(), " and ", labels.sym_sizes());
  return wide(input).log_softmax(1).mul(labels).sum(1).neg_().to(input.scalar_type());
}

Tensor softmax_cross_entropy_backward(const Tensor& grad, const Tensor& input, const Tensor& labels) {
  return wide(input).softmax(1).sub_(labels).mul_(grad.unsqueeze(1)).to(input.scalar_type());
}

variable_list softmax_cross_entropy_derivative(Context<softmax_cross_entropy>& c) {
  return {Operator<"npu_softmax_cross_entropy_with_logits_backward", softmax_cross_entropy_backward>::call(
              c.grad(0), c.input<0>(), c.input<1>()),
          Tensor()};
}

// ---- Cross entropy with class weights, ignored targets and label smoothing

enum class Reduction { kNone, kMean, kSum };
Reduction reduction_of(std::string_view name) {
  if (name == "none") return Reduction::kNone;
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  CANN_CHECK_OP(false, "npu_cross_entropy_loss: reduction must be 'none', 'mean' or 'sum', but got '", name, "'");
}

// What the rows of a loss weigh: 0 for ignored ones, else the weight of their class.
struct Targets {
  Tensor index;   // (N, 1), ignored ones replaced by 0
  Tensor weight;  // (N)
  Tensor kept;    // (N), 0 or 1 in the compute type
};
Targets targets_of(const Tensor& target, const OptionalTensor& weight, int64_t ignore_index, at::ScalarType type) {
  Targets t;
  const Tensor kept = target.ne(ignore_index);
  t.index = target.to(at::kLong).mul(kept).unsqueeze(1);
  t.kept = kept.to(type);
  t.weight = has(weight) ? weight->to(type).index_select(0, t.index.squeeze(1)).mul_(t.kept) : t.kept;
  return t;
}

void check_zloss(double scale, bool return_zloss) {
  CANN_CHECK_SUPPORTED(scale == 0 && !return_zloss,
                       "npu_cross_entropy_loss: the z loss is not supported, on hardware neither: "
                       "lse_square_scale_for_zloss must be 0 and return_zloss False");
}

using Losses = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns (loss, log probabilities, empty, empty); the loss has one element unless the reduction is "none".
Losses cross_entropy_loss(const Tensor& input, const Tensor& target, const OptionalTensor& weight,
                          std::string_view reduction, int64_t ignore_index, double smoothing, double zloss_scale,
                          bool return_zloss) {
  check_zloss(zloss_scale, return_zloss);
  CANN_CHECK_OP(input.dim() == 2 && target.dim() == 1 && input.sym_size(0) == target.sym_size(0),
                "npu_cross_entropy_loss: input must be (N, C) and target (N), but have ", input.sym_sizes(), " and ",
                target.sym_sizes());
  const Tensor log_prob = wide(input).log_softmax(1);
  const Targets t = targets_of(target, weight, ignore_index, log_prob.scalar_type());
  Tensor loss = log_prob.gather(1, t.index).squeeze(1).mul(t.weight).mul_(smoothing - 1);
  if (smoothing > 0) {
    const Tensor all = has(weight) ? at::matmul(log_prob, weight->to(log_prob.scalar_type())) : log_prob.sum(1);
    loss.sub_(all.mul(t.kept).mul_(smoothing / static_cast<double>(input.size(1))));
  }
  const Reduction kind = reduction_of(reduction);
  if (kind != Reduction::kNone) loss = loss.sum().reshape({1});
  if (kind == Reduction::kMean) loss = loss.div(t.weight.sum());
  const Tensor none = at::empty({0}, input.options());
  return {loss.to(input.scalar_type()), log_prob.to(input.scalar_type()), none, none.clone()};
}

Tensor cross_entropy_loss_backward(const Tensor& grad_loss, const Tensor& log_prob, const Tensor& target,
                                   const OptionalTensor& weight, const OptionalTensor& grad_zloss,
                                   const OptionalTensor&, std::string_view reduction, int64_t ignore_index,
                                   double smoothing, double zloss_scale) {
  check_zloss(zloss_scale, has(grad_zloss));
  const Tensor log_p = wide(log_prob);
  const auto type = log_p.scalar_type();
  const Targets t = targets_of(target, weight, ignore_index, type);
  // (1 - s) w_t (p - onehot(t)) + s / C (p sum(w) - w), rows weighed by the gradient
  const double classes = static_cast<double>(log_prob.size(1));
  Tensor row = wide(grad_loss).expand_as(t.weight);
  if (reduction_of(reduction) == Reduction::kMean) row = row.div(t.weight.sum());
  Tensor mass = t.weight.mul(1 - smoothing);
  if (smoothing > 0) {
    const Tensor total = has(weight) ? weight->to(type).sum() : at::full({}, classes, log_p.options());
    mass = mass.add(t.kept.mul(total).mul_(smoothing / classes));
  }
  Tensor grad = log_p.exp().mul_(mass.unsqueeze(1));
  grad.scatter_add_(1, t.index, t.weight.mul(smoothing - 1).unsqueeze(1));
  if (smoothing > 0) {
    const Tensor each = has(weight) ? t.kept.unsqueeze(1).mul(weight->to(type)) : t.kept.unsqueeze(1);
    grad.sub_(each.mul(smoothing / classes));
  }
  return grad.mul_(row.unsqueeze(1)).to(log_prob.scalar_type());
}

variable_list cross_entropy_loss_derivative(Context<cross_entropy_loss>& c) {
  return {Operator<"npu_cross_entropy_loss_backward", cross_entropy_loss_backward>::call(
              c.grad(0), c.output<1>(), c.input<1>(), c.input<2>(), std::nullopt, std::nullopt, c.input<3>(),
              c.input<4>(), c.input<5>(), c.input<6>()),
          Tensor(), Tensor()};
}

// ---- Cross entropy of a linear layer whose vocabulary is split over ranks, in three steps with communication between

// The highest bit of a byte is its first row; rows behind the last count as masked.
Tensor pack_rows(const Tensor& mask) {
  const SymInt rows = mask.sym_size(0), bytes = (rows + 7) / 8;
  const Tensor padded = at::cat({mask, at::ones_symint({bytes * 8 - rows}, mask.options())});
  const Tensor bits = at::arange(7, -1, -1, mask.options().dtype(at::kLong));
  const Tensor weights = at::bitwise_left_shift(at::ones_like(bits), bits);
  return padded.reshape_symint({bytes, 8}).to(at::kLong).mul(weights).sum(1).to(at::kByte);
}
Tensor unpack_rows(const Tensor& packed, const SymInt& rows) {
  const Tensor bits = at::arange(7, -1, -1, packed.options().dtype(at::kByte));
  return at::bitwise_right_shift(packed.unsqueeze(1), bits)
      .bitwise_and(1)
      .reshape({-1})
      .narrow_symint(0, 0, rows)
      .to(at::kBool);
}

using LinearMaxSum = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// input (N, H), weight (V, H), target (N). Returns the maximum of each row's logits, the sum of exp(logit - maximum),
// the target's logit less the maximum (0 when another rank has it), which targets another rank has (packed), targets
// relative to vocab_start_index, and the logits if asked for. The range includes vocab_end_index.
LinearMaxSum linear_online_max_sum(const Tensor& input, const Tensor& weight, const Tensor& target,
                                   int64_t vocab_start_index, int64_t vocab_end_index, bool return_logits) {
  const Tensor logits = at::matmul(wide(input), wide(weight).transpose(0, 1));
  const Tensor maximum = logits.amax(1);
  const Tensor relative = logits.sub(maximum.unsqueeze(1));
  const Tensor elsewhere = target.lt(vocab_start_index).logical_or(target.gt(vocab_end_index));
  const Tensor masked_target = target.sub(vocab_start_index).masked_fill(elsewhere, 0);
  const Tensor predicted =
      relative.gather(1, masked_target.to(at::kLong).unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0);
  return {maximum,       relative.exp().sum(1),
          predicted,     pack_rows(elsewhere),
          masked_target, return_logits ? logits.to(input.scalar_type()) : Tensor()};
}

// Returns (loss, softmax of the logits if they are given).
std::tuple<Tensor, Tensor> cross_entropy_with_max_sum(const Tensor& logits_max, const Tensor& sum_exp_logits,
                                                      const Tensor& predicted_logits,
                                                      std::optional<double> label_smoothing, const OptionalTensor&,
                                                      const OptionalTensor&, const OptionalTensor& logits) {
  CANN_CHECK_SUPPORTED(label_smoothing.value_or(0) == 0,
                       "npu_fused_cross_entropy_loss_with_max_sum: label_smoothing must be 0, as on hardware");
  Tensor softmax;
  if (has(logits)) softmax = wide(*logits).sub(logits_max.unsqueeze(1)).exp_().div_(sum_exp_logits.unsqueeze(1));
  return {sum_exp_logits.log().sub_(predicted_logits), softmax};
}

// Gradients of input and weight.
std::tuple<Tensor, Tensor> linear_cross_entropy_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                         const Tensor& target_mask, const Tensor& masked_target,
                                                         double label_smoothing, const OptionalTensor& logits_max,
                                                         const OptionalTensor& sum_exp_logits,
                                                         const OptionalTensor& softmax) {
  constexpr const char* kOp = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward";
  CANN_CHECK_SUPPORTED(label_smoothing == 0, kOp, ": label_smoothing must be 0, as on hardware");
  const Tensor x = wide(input), w = wide(weight);
  Tensor d_logits;
  if (has(softmax)) {
    d_logits = softmax->to(x.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  } else {
    CANN_CHECK_OP(has(logits_max) && has(sum_exp_logits), kOp, ": needs softmax, or logits_max and sum_exp_logits");
    d_logits = at::matmul(x, w.transpose(0, 1)).sub_(logits_max->unsqueeze(1)).exp_();
    d_logits.div_(sum_exp_logits->unsqueeze(1));
  }
  const Tensor here = unpack_rows(target_mask, input.sym_size(0)).logical_not().to(x.scalar_type());
  d_logits.scatter_add_(1, masked_target.to(at::kLong).unsqueeze(1), here.neg().unsqueeze(1));
  d_logits.mul_(grad.to(x.scalar_type()).unsqueeze(1));
  return {at::matmul(d_logits, w).to(input.scalar_type()),
          at::matmul(d_logits.transpose(0, 1), x).to(weight.scalar_type())};
}

// ---- Gradients of PyTorch's losses under their npu names

Tensor kl_div_backward(const Tensor& grad, const Tensor& input, const Tensor& target, int64_t reduction,
                       bool log_target) {
  Tensor d = log_target ? target.exp().neg_().mul_(grad) : target.neg().mul_(grad);
  if (!log_target) d.masked_fill_(target.le(0), 0);
  return reduction == at::Reduction::Mean ? d.div_(static_cast<double>(input.numel())) : d;
}

Tensor l1_loss_backward(const Tensor& grad, const Tensor& input, const Tensor& target, int64_t reduction) {
  Tensor d = input.sub(target).sign_().mul_(grad);
  return reduction == at::Reduction::Mean ? d.div_(static_cast<double>(input.numel())) : d;
}

// The gradient of kl_div with respect to its target.
Tensor kl_div_target_backward(const Tensor& grad, const Tensor& input, const Tensor& target, int64_t reduction,
                              bool log_target) {
  Tensor d = log_target ? target.exp().mul_(target.add(1).sub_(input)) : target.log().add_(1).sub_(input);
  if (!log_target) d.masked_fill_(target.le(0), 0);
  d.mul_(grad);
  return reduction == at::Reduction::Mean ? d.div_(static_cast<double>(input.numel())) : d;
}

Tensor bce_with_logits_backward(const Tensor& grad, const Tensor& input, const Tensor& target,
                                const OptionalTensor& weight, const OptionalTensor& pos_weight, int64_t reduction) {
  const Tensor x = wide(input), t = wide(target);
  // d/dx of -(pos t log s + (1 - t) log(1 - s)) is (1 - t) - (1 - t + pos t) (1 - s)
  const Tensor negative = t.neg().add_(1);
  const Tensor both = has(pos_weight) ? negative.add(t.mul(*pos_weight)) : at::ones_like(t);
  Tensor d = negative.sub(both.mul(x.neg().sigmoid_())).mul_(wide(grad));
  if (has(weight)) d = d.mul(*weight);
  if (reduction == at::Reduction::Mean) d.div_(static_cast<double>(input.numel()));
  return d.to(input.scalar_type());
}

}  // namespace

void register_loss(Registry& ops) {
  ops.add<"npu_scaled_masked_softmax", scaled_masked_softmax>(
         "(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor")
      .autograd<scaled_masked_softmax_derivative, Saves<1>, Saves<0>>();
  ops.add<"npu_scaled_masked_softmax_backward", scaled_masked_softmax_backward>(
      "(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool fixed_triu_mask) -> Tensor");
  ops.add<"npu_masked_softmax_with_rel_pos_bias", masked_softmax_with_rel_pos_bias>(
      "(Tensor x, Tensor? atten_mask, Tensor relative_pos_bias, float scale_value=1.0, int inner_precision_mode=0) "
      "-> Tensor");
  ops.add<"npu_attn_softmax_", attn_softmax_>("(Tensor(a!) input) -> Tensor(a!)");
  ops.add<"npu_attn_softmax_backward_", attn_softmax_backward_>(
      "(Tensor(a!) input, Tensor grad_output, Tensor values) -> Tensor(a!)");
  ops.add<"npu_softmax_cross_entropy_with_logits", softmax_cross_entropy>("(Tensor input, Tensor labels) -> Tensor")
      .autograd<softmax_cross_entropy_derivative, Saves<0, 1>>()
      .autocast_float32();
  ops.add<"npu_softmax_cross_entropy_with_logits_backward", softmax_cross_entropy_backward>(
      "(Tensor grad, Tensor input, Tensor labels) -> Tensor");
  ops.add<"npu_cross_entropy_loss", cross_entropy_loss>(
         "(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean', int ignore_index=-100, float "
         "label_smoothing=0.0, float lse_square_scale_for_zloss=0.0, bool return_zloss=False) -> (Tensor, Tensor, "
         "Tensor, Tensor)")
      .autograd<cross_entropy_loss_derivative, Saves<1, 2>, Saves<1>>()
      .autocast_float32();
  ops.add<"npu_cross_entropy_loss_backward", cross_entropy_loss_backward>(
      "(Tensor grad_loss, Tensor log_prob, Tensor target, Tensor? weight=None, Tensor? grad_zloss=None, Tensor? "
      "lse_for_zloss=None, str reduction='mean', int ignore_index=-100, float label_smoothing=0.0, float "
      "lse_square_scale_for_zloss=0.0) -> Tensor");
  ops.add<"npu_fused_linear_online_max_sum", linear_online_max_sum>(
      "(Tensor input, Tensor weight, Tensor target, int vocab_start_index, int vocab_end_index, bool "
      "return_logits=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  ops.add<"npu_fused_cross_entropy_loss_with_max_sum", cross_entropy_with_max_sum>(
      "(Tensor logits_max, Tensor sum_exp_logits, Tensor predicted_logits, *, float? label_smoothing=0.0, Tensor? "
      "input=None, Tensor? weight=None, Tensor? vocab_parallel_logits=None) -> (Tensor, Tensor)");
  ops.add<"npu_fused_linear_cross_entropy_loss_with_max_sum_backward", linear_cross_entropy_backward>(
      "(Tensor grad, Tensor input, Tensor weight, Tensor target_mask, Tensor masked_target, float "
      "label_smoothing=0.0, Tensor? logits_max=None, Tensor? sum_exp_logits=None, Tensor? softmax=None) -> (Tensor, "
      "Tensor)");
  ops.add<"kl_div_backward", kl_div_backward>(
      "(Tensor grad_output, Tensor input, Tensor target, int reduction=Mean, *, bool log_target=False) -> Tensor");
  ops.add<"kl_div_target_backward", kl_div_target_backward>(
      "(Tensor grad_output, Tensor input, Tensor target, int reduction=Mean, *, bool log_target=False) -> Tensor");
  ops.add<"npu_binary_cross_entropy_with_logits_backward", bce_with_logits_backward>(
      "(Tensor grad_output, Tensor input, Tensor target, Tensor? weight_opt, Tensor? pos_weight_opt, int reduction) "
      "-> Tensor");
  ops.add<"l1_loss_backward", l1_loss_backward>(
      "(Tensor grad_output, Tensor input, Tensor target, int reduction) -> Tensor");
}

}  // namespace cann::aten::npu
