// The fused optimizers _fused_adam_, _fused_adamw_ and _fused_sgd_, and _fused_adagrad_, which is ATen's: one pass over
// parameter, gradient and state.
//
// The CPU's kernels are called tensor by tensor and start threads for each; here the lists are walked as one range.
// The numbers are those of the default (foreach) optimizers, to the bit; the CPU's fused kernels round differently in
// the last, partial vector of each tensor.

#include <cmath>

#include "aten/fused/dense_lists.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/one_layout.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

// A number that a kernel is given as a tensor of one float32 element, such as a step or a scale: on the card, or
// without dimensions on the host, where default optimizers keep their steps.
bool read_float(const at::Tensor& number, c10::DeviceIndex device, float& value) {
  if (!number.defined() || number.scalar_type() != at::kFloat || number.numel() != 1 || number.is_neg() ||
      (number.device() != c10::Device(kNPU, device) && !(number.device().is_cpu() && number.dim() == 0))) {
    return false;
  }
  value = *static_cast<const float*>(number.const_data_ptr());
  return true;
}

bool read_optional(const std::optional<at::Tensor>& number, c10::DeviceIndex device, float& value) {
  return !number.has_value() || !number->defined() || read_float(*number, device, value);
}

// What the optimizers have in common besides their lists.
struct Scaling {
  float grad_scale = 1.0f;
  float found_inf = 0.0f;
  bool read(const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& found, c10::DeviceIndex device) {
    return read_optional(scale, device, grad_scale) && read_optional(found, device, found_inf);
  }
};

struct AdamArguments {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;
};

kernels::AdamStep adam_step(const AdamArguments& a, float grad_scale, double step) {
  return {.grad_scale = grad_scale,
          .maximize = a.maximize,
          .decay = static_cast<float>(a.decoupled ? 1 - a.lr * a.weight_decay : 1.0),
          .l2 = static_cast<float>(a.decoupled ? 0.0 : a.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .one_minus_beta2 = static_cast<float>(1 - a.beta2),
          .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, step))),
          .eps = static_cast<float>(a.eps),
          .step_size = static_cast<float>(-(a.lr / (1 - std::pow(a.beta1, step))))};
}

// Returns false, having done nothing, when the lists are not regular.
bool adam(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
          at::TensorList max_exp_avg_sqs, at::TensorList steps, const AdamArguments& arguments,
          const std::optional<at::Tensor>& grad_scale, const std::optional<at::Tensor>& found_inf) {
  DenseLists lists;
  for (const at::TensorList list : {params, grads, exp_avgs, exp_avg_sqs}) lists.add(list, /*written=*/true);
  if (arguments.amsgrad) lists.add(max_exp_avg_sqs, /*written=*/true);
  Scaling scaling;
  if (!lists.regular() || steps.size() != params.size() || !scaling.read(grad_scale, found_inf, lists.device())) {
    return false;
  }
  c10::SmallVector<kernels::AdamStep, 8> constants;  // tensors mostly are at the same step
  c10::SmallVector<uint32_t, 32> constants_of(params.size());
  float last = -1.0f;
  for (size_t i = 0; i < steps.size(); ++i) {
    float step = 0.0f;
    if (!read_float(steps[i], lists.device(), step)) return false;
    if (i == 0 || step != last) constants.push_back(adam_step(arguments, scaling.grad_scale, step));
    last = step;
    constants_of[i] = static_cast<uint32_t>(constants.size() - 1);
  }
  if (scaling.found_inf != 1.0f) {
    const kernels::AdamKernel kernel = kernels::kernels().optimizer->adam[static_cast<int>(lists.element())];
    lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
      kernel(lists.at(0, i, begin), lists.at(1, i, begin), lists.at(2, i, begin), lists.at(3, i, begin),
             arguments.amsgrad ? lists.at(4, i, begin) : nullptr, constants[constants_of[i]], end - begin);
    });
  }
  for (const at::TensorList list : {params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs}) bump_versions(list);
  return true;
}

template <class Op, bool kDecoupled>
void fused_adam(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                at::TensorList max_exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize,
                const std::optional<at::Tensor>& grad_scale, const std::optional<at::Tensor>& found_inf) {
  const AdamArguments arguments{lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, kDecoupled};
  if (adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, arguments, grad_scale, found_inf)) return;
  OnOneLayout<Op, 4>::call(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, weight_decay,
                           eps, amsgrad, maximize, grad_scale, found_inf);
}

template <class Op, bool kDecoupled>
void fused_adam_tensor_lr(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                          at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
                          const at::Tensor& lr, double beta1, double beta2, double weight_decay, double eps,
                          bool amsgrad, bool maximize, const std::optional<at::Tensor>& grad_scale,
                          const std::optional<at::Tensor>& found_inf) {
  fused_adam<Op, kDecoupled>(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr.item().toDouble(), beta1,
                             beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

void fused_sgd(at::TensorList params, at::TensorList grads, at::TensorList buffers, double weight_decay,
               double momentum, double lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
               const std::optional<at::Tensor>& grad_scale, const std::optional<at::Tensor>& found_inf) {
  DenseLists lists;
  lists.add(params, /*written=*/true);
  lists.add(grads, /*written=*/true);
  const bool has_buffers = !buffers.empty();
  if (has_buffers) lists.add(buffers, /*written=*/true);
  Scaling scaling;
  if (!lists.regular() || (momentum != 0) != has_buffers || !scaling.read(grad_scale, found_inf, lists.device())) {
    return OnOneLayout<at::_ops::_fused_sgd_, 2>::call(params, grads, buffers, weight_decay, momentum, lr, dampening,
                                                       nesterov, maximize, is_first_step, grad_scale, found_inf);
  }
  const kernels::SgdStep step{.grad_scale = scaling.grad_scale,
                              .maximize = maximize,
                              .l2 = static_cast<float>(weight_decay),
                              .momentum = static_cast<float>(momentum),
                              .one_minus_dampening = static_cast<float>(1 - dampening),
                              .nesterov = nesterov,
                              .first = is_first_step,
                              .lr = static_cast<float>(lr)};
  if (scaling.found_inf != 1.0f) {
    const kernels::SgdKernel kernel = kernels::kernels().optimizer->sgd[static_cast<int>(lists.element())];
    lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
      kernel(lists.at(0, i, begin), lists.at(1, i, begin), has_buffers ? lists.at(2, i, begin) : nullptr, step,
             end - begin);
    });
  }
  for (const at::TensorList list : {params, grads, buffers}) bump_versions(list);
}

void fused_sgd_tensor_lr(at::TensorList params, at::TensorList grads, at::TensorList buffers, double weight_decay,
                         double momentum, const at::Tensor& lr, double dampening, bool nesterov, bool maximize,
                         bool is_first_step, const std::optional<at::Tensor>& grad_scale,
                         const std::optional<at::Tensor>& found_inf) {
  fused_sgd(params, grads, buffers, weight_decay, momentum, lr.item().toDouble(), dampening, nesterov, maximize,
            is_first_step, grad_scale, found_inf);
}

}  // namespace

void register_fused_optimizers(torch::Library& aten) {
  namespace ops = at::_ops;
  register_native<ops::_fused_adam_, &fused_adam<ops::_fused_adam_, false>>(aten);
  register_native<ops::_fused_adam__tensor_lr, &fused_adam_tensor_lr<ops::_fused_adam_, false>>(aten);
  register_native<ops::_fused_adamw_, &fused_adam<ops::_fused_adamw_, true>>(aten);
  register_native<ops::_fused_adamw__tensor_lr, &fused_adam_tensor_lr<ops::_fused_adamw_, true>>(aten);
  register_native<ops::_fused_sgd_, &fused_sgd>(aten);
  register_native<ops::_fused_sgd__tensor_lr, &fused_sgd_tensor_lr>(aten);
  register_native<ops::_fused_adagrad_, &OnOneLayout<ops::_fused_adagrad_, 2>::call>(aten);
  register_native<ops::_fused_adagrad__tensor_lr, &OnOneLayout<ops::_fused_adagrad__tensor_lr, 2>::call>(aten);
}

}  // namespace cann::aten
