// Fused optimizer steps. They only have out= forms that work: out is (parameter, first moment, second moment), updated
// in place and returned.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"
#include "aten/write_guard.h"

namespace cann::aten::npu {
namespace {

using Step = std::tuple<Tensor, Tensor, Tensor>;

struct State {
  Tensor parameter, first, second;
};
State state_of(TensorList out, const Tensor& grad, const char* op) {
  CANN_CHECK_OP(out.size() == 3, op, ": out must be (parameter, first moment, second moment), but has ", out.size(),
                " tensors");
  for (const Tensor& t : out) {
    CANN_CHECK_OP(t.sym_sizes().equals(grad.sym_sizes()), op, ": out must have grad's sizes ", grad.sym_sizes(),
                  ", but one tensor has ", t.sym_sizes());
  }
  return {out[0], out[1], out[2]};
}

// moment = beta * moment + (1 - beta) * value, computed in the compute type
void decay(const Tensor& moment, double beta, const Tensor& value) {
  moment.mul_(beta).add_(value.to(moment.scalar_type()), 1 - beta);
}

// The shared end: the list is returned as the operator's results.
Step results(TensorList out) { return {out[0], out[1], out[2]}; }

// TensorFlow's ApplyAdam: lr is corrected by the powers of beta that it is given.
Step adam_out(const Scalar& beta1_power, const Scalar& beta2_power, const Scalar& lr, const Scalar& beta1,
              const Scalar& beta2, const Scalar& epsilon, const Tensor& grad, std::optional<bool>,
              std::optional<bool> use_nesterov, TensorList out) {
  const State s = state_of(out, grad, "npu_apply_adam");
  const double b1 = beta1.toDouble(), b2 = beta2.toDouble();
  const double rate = lr.toDouble() * std::sqrt(1 - beta2_power.toDouble()) / (1 - beta1_power.toDouble());
  const Tensor g = wide(grad);
  decay(s.first, b1, g);
  decay(s.second, b2, g.square());
  const Tensor direction = use_nesterov.value_or(false) ? wide(s.first).mul(b1).add_(g, 1 - b1) : wide(s.first);
  s.parameter.sub_(direction.div(wide(s.second).sqrt().add_(epsilon)).mul_(rate).to(s.parameter.scalar_type()));
  return results(out);
}

// AdamW; the powers of beta are those before this step. max_grad_norm is the running maximum that amsgrad keeps.
Step adam_w_out(const Scalar& beta1_power, const Scalar& beta2_power, const Scalar& lr, const Scalar& weight_decay,
                const Scalar& beta1, const Scalar& beta2, const Scalar& epsilon, const Tensor& grad,
                const OptionalTensor& max_grad_norm, std::optional<bool> amsgrad, std::optional<bool> maximize,
                TensorList out) {
  constexpr const char* kOp = "npu_apply_adam_w";
  const State s = state_of(out, grad, kOp);
  CANN_CHECK_OP(!amsgrad.value_or(false) || has(max_grad_norm), kOp,
                ": amsgrad needs max_grad_norm, the running maximum of the second moment");
  const double b1 = beta1.toDouble(), b2 = beta2.toDouble(), rate = lr.toDouble();
  const double correction1 = 1 - beta1_power.toDouble() * b1, correction2 = 1 - beta2_power.toDouble() * b2;
  const Tensor g = maximize.value_or(false) ? wide(grad).neg() : wide(grad);
  decay(s.first, b1, g);
  decay(s.second, b2, g.square());
  s.parameter.mul_(1 - rate * weight_decay.toDouble());
  Tensor second = wide(s.second);
  if (amsgrad.value_or(false)) second = max_grad_norm->copy_(at::maximum(*max_grad_norm, second));
  const Tensor denominator = second.div(correction2).sqrt_().add_(epsilon);
  s.parameter.sub_(wide(s.first).div(denominator).mul_(rate / correction1).to(s.parameter.scalar_type()));
  return results(out);
}

// BERT's Adam: no bias correction, weight decay in the update. Gradients are scaled down when global_grad_norm exceeds
// a positive max_grad_norm.
Step bert_adam_out(const Scalar& lr, const Scalar& beta1, const Scalar& beta2, const Scalar& epsilon,
                   const Tensor& grad, const Scalar& max_grad_norm, const Scalar& global_grad_norm,
                   const Scalar& weight_decay, const std::optional<Scalar>&, int64_t adam_mode, TensorList out) {
  constexpr const char* kOp = "npu_bert_apply_adam";
  CANN_CHECK_SUPPORTED(adam_mode == 0, kOp, ": adam_mode ", adam_mode,
                       " is not implemented, only 0: how the others correct the step is not published");
  const State s = state_of(out, grad, kOp);
  const double limit = max_grad_norm.toDouble(), norm = global_grad_norm.toDouble();
  Tensor g = wide(grad);
  if (limit > 0 && norm > limit) g = g.mul(limit / norm);
  decay(s.first, beta1.toDouble(), g);
  decay(s.second, beta2.toDouble(), g.square());
  Tensor update = wide(s.first).div(wide(s.second).sqrt().add_(epsilon));
  update.add_(wide(s.parameter), weight_decay.toDouble());
  s.parameter.sub_(update.mul_(lr).to(s.parameter.scalar_type()));
  return results(out);
}

// Writing members of a list is invisible to the dispatcher: versions are bumped here, on the npu tensors.
template <FixedString Id, auto kStep>
struct OutOf;
template <FixedString Id, class... A, Step (*kStep)(A...)>
struct OutOf<Id, kStep> {
  static Step call(A... args) {
    const TensorList out = last(args...);
    Step step = Operator<Id, kStep>::hosted(static_cast<A&&>(args)...);
    bump_versions(out);
    return step;
  }
  static Step shape(A... args) { return results(last(args...)); }

 private:
  static TensorList last(const auto&... args) { return std::get<sizeof...(args) - 1>(std::tie(args...)); }
};

// The forms without out= have no state to update.
[[noreturn]] void refuse_without_out(const char* op) {
  CANN_CHECK_OP(false, op, " needs out=(parameter, first moment, second moment), the tensors to update");
  __builtin_unreachable();
}
Step adam(const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Tensor&,
          std::optional<bool>, std::optional<bool>) {
  refuse_without_out("npu_apply_adam");
}
Step adam_w(const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Scalar&,
            const Tensor&, const OptionalTensor&, std::optional<bool>, std::optional<bool>) {
  refuse_without_out("npu_apply_adam_w");
}
Step bert_adam(const Scalar&, const Scalar&, const Scalar&, const Scalar&, const Tensor&, const Scalar&, const Scalar&,
               const Scalar&, const std::optional<Scalar>&, int64_t) {
  refuse_without_out("npu_bert_apply_adam");
}

}  // namespace

void register_optimizer(Registry& ops) {
  using AdamOut = OutOf<"npu_apply_adam.out", adam_out>;
  using AdamWOut = OutOf<"npu_apply_adam_w.out", adam_w_out>;
  using BertAdamOut = OutOf<"npu_bert_apply_adam.out", bert_adam_out>;
  ops.add_native<"npu_apply_adam", adam>(
      "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, "
      "bool? use_locking, bool? use_nesterov) -> (Tensor, Tensor, Tensor)");
  ops.add_native<"npu_apply_adam.out", AdamOut::call, AdamOut::shape>(
      "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, "
      "bool? use_locking, bool? use_nesterov, *, Tensor[] out) -> (Tensor, Tensor, Tensor)");
  ops.add_native<"npu_apply_adam_w", adam_w>(
      "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, Scalar "
      "epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize) -> (Tensor, Tensor, Tensor)");
  ops.add_native<"npu_apply_adam_w.out", AdamWOut::call, AdamWOut::shape>(
      "(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, Scalar "
      "epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize, *, Tensor[] out) -> (Tensor, "
      "Tensor, Tensor)");
  ops.add_native<"npu_bert_apply_adam", bert_adam>(
      "(Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, Scalar max_grad_norm, Scalar "
      "global_grad_norm, Scalar weight_decay, Scalar? step_size=None, int adam_mode=0) -> (Tensor var, Tensor m, "
      "Tensor v)");
  ops.add_native<"npu_bert_apply_adam.out", BertAdamOut::call, BertAdamOut::shape>(
      "(Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, Scalar max_grad_norm, Scalar "
      "global_grad_norm, Scalar weight_decay, Scalar? step_size=None, int adam_mode=0, *, Tensor[] out) -> (Tensor, "
      "Tensor, Tensor)");
}

}  // namespace cann::aten::npu
