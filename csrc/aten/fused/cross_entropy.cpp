// Cross entropy of logits against classes. ATen composes it of log-softmax and nll_loss, whose intermediate results are
// as large as the logits; here a forward keeps two numbers per row, and the backward writes the gradient in one pass.
// 16-bit logits are read as they are, under autocast too, which would otherwise make a float32 copy first.
//
// Other shapes, class probabilities, and what needs derivatives of another kind than a gradient stay composed, as does
// everything while the device's clock runs, which predicts the operators that hardware would run.

#include "aten/fused/cross_entropy.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cross_entropy_loss_compositeimplicitautograd_dispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/plain.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The arguments other than tensors, and the type of the result.
struct Terms {
  int64_t reduction;
  int64_t ignore_index;
  double label_smoothing;
  at::ScalarType result_type;
};

kernels::CrossEntropy kernel_terms(const Tensor& logits, const OptionalTensor& weight, const Terms& terms) {
  kernels::CrossEntropy result{.columns = logits.size(1),
                               .weight = data_or_null(weight),
                               .weight_sum = static_cast<double>(logits.size(1)),
                               .ignore_index = terms.ignore_index,
                               .label_smoothing = terms.label_smoothing};
  if (result.weight != nullptr) {
    result.weight_sum = 0;
    for (int64_t c = 0; c < result.columns; ++c) result.weight_sum += result.weight[c];
  }
  return result;
}

// What a mean divides by: the weights of the classes that are not ignored.
double total_weight(const Tensor& target, const kernels::CrossEntropy& terms) {
  const int64_t* classes = target.const_data_ptr<int64_t>();
  double total = 0;
  for (int64_t row = 0; row < target.numel(); ++row) {
    if (classes[row] != terms.ignore_index) total += terms.weight == nullptr ? 1.0 : terms.weight[classes[row]];
  }
  return total;
}

// The loss and the statistics of the rows, [rows, 2] float32.
std::tuple<Tensor, Tensor> forward_kernel(const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                                          const Terms& terms) {
  note_kernel_choice(KernelChoice::kOwn);
  const int64_t rows = logits.size(0), columns = logits.size(1), row_bytes = columns * logits.element_size();
  Tensor losses = empty_contiguous({rows}, at::kFloat, logits.device());
  Tensor statistics = empty_contiguous({rows, 2}, at::kFloat, logits.device());
  const kernels::CrossEntropy shared = kernel_terms(logits, weight, terms);
  const auto kernel = kernels::kernels().cross_entropy->forward[static_cast<int>(*element_of(logits.scalar_type()))];
  float *loss = losses.mutable_data_ptr<float>(), *s = statistics.mutable_data_ptr<float>();
  const char* x = static_cast<const char*>(logits.const_data_ptr());
  const int64_t* classes = target.const_data_ptr<int64_t>();
  parallel(rows, columns, [&](int64_t begin, int64_t end) {
    kernel(loss + begin, s + 2 * begin, x + begin * row_bytes, classes + begin, shared, end - begin);
  });
  if (terms.reduction == at::Reduction::None) return {losses.to(terms.result_type), std::move(statistics)};
  double sum = 0;  // in the order of the rows
  for (int64_t row = 0; row < rows; ++row) sum += loss[row];
  if (terms.reduction == at::Reduction::Mean) sum /= total_weight(target, shared);
  Tensor result = empty_contiguous({}, at::kFloat, logits.device());
  *result.mutable_data_ptr<float>() = static_cast<float>(sum);
  return {result.to(terms.result_type), std::move(statistics)};
}

// The gradient of the logits; `grad` is the loss's, float32 and contiguous.
Tensor backward_kernel(const Tensor& grad, const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                       const Tensor& statistics, const Terms& terms) {
  note_kernel_choice(KernelChoice::kOwn);
  const int64_t rows = logits.size(0), columns = logits.size(1), row_bytes = columns * logits.element_size();
  Tensor result = empty_like_dense(logits);
  const kernels::CrossEntropy shared = kernel_terms(logits, weight, terms);
  const bool each = terms.reduction == at::Reduction::None;
  const float* g = grad.const_data_ptr<float>();
  float common = each ? 0.0f : *g;
  if (terms.reduction == at::Reduction::Mean) common = static_cast<float>(common / total_weight(target, shared));
  const auto kernel = kernels::kernels().cross_entropy->backward[static_cast<int>(*element_of(logits.scalar_type()))];
  const char* x = static_cast<const char*>(logits.const_data_ptr());
  char* dx = static_cast<char*>(result.mutable_data_ptr());
  const float* s = statistics.const_data_ptr<float>();
  const int64_t* classes = target.const_data_ptr<int64_t>();
  parallel(rows, columns, [&](int64_t begin, int64_t end) {
    kernel(dx + begin * row_bytes, x + begin * row_bytes, s + 2 * begin, each ? g + begin : &common, each ? 1 : 0,
           classes + begin, shared, end - begin);
  });
  return result;
}

// The same in operators that have derivatives; see kernels/cross_entropy.h for the formula.
Tensor backward_by_formula(const Tensor& grad, const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                           const Terms& terms) {
  const double of_each = terms.label_smoothing / static_cast<double>(logits.size(1));
  const Tensor counted = target.ne(terms.ignore_index), classes = target.masked_fill(counted.logical_not(), 0);
  const Tensor weights = present(weight) ? *weight : at::ones({logits.size(1)}, logits.options().dtype(at::kFloat));
  const Tensor class_weights = weights.index_select(0, classes) * counted;
  const Tensor of_class = (class_weights * (1.0 - terms.label_smoothing)).unsqueeze(1);
  Tensor of_row = grad.to(at::kFloat) * counted;
  if (terms.reduction == at::Reduction::Mean) of_row = of_row / class_weights.sum();
  const Tensor p = logits.to(at::kFloat).softmax(1) * (of_class + weights.sum() * of_each);
  const Tensor labels = at::zeros_like(p).scatter(1, classes.unsqueeze(1), of_class) + weights * of_each;
  return ((p - labels) * of_row.unsqueeze(1)).to(logits.scalar_type());
}

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& logits, const Tensor& target,
                        const OptionalTensor& weight, int64_t reduction, int64_t ignore_index, double label_smoothing,
                        at::ScalarType result_type) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Terms terms{reduction, ignore_index, label_smoothing, result_type};
    auto [loss, statistics] = forward_kernel(logits, target, weight, terms);
    context->save_for_backward({logits, target, weight.value_or(Tensor()), statistics});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["label_smoothing"] = label_smoothing;
    return loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list result(7);
    if (!grads[0].defined()) return result;
    const auto saved = context->get_saved_variables();
    const Tensor &logits = saved[0], &target = saved[1], &statistics = saved[3];
    const OptionalTensor weight = saved[2].defined() ? OptionalTensor(saved[2]) : std::nullopt;
    const Terms terms{context->saved_data["reduction"].toInt(), context->saved_data["ignore_index"].toInt(),
                      context->saved_data["label_smoothing"].toDouble(), grads[0].scalar_type()};
    const bool simple = !at::GradMode::is_enabled() && is_an_ordinary_tensor(grads[0]) &&
                        !c10::impl::TorchDispatchModeTLS::any_modes_set();
    const Tensor grad = simple ? grads[0].to(at::kFloat).contiguous() : grads[0];
    result[0] = simple && is_plain_float(grad, logits.device())
                    ? backward_kernel(grad, logits, target, weight, statistics, terms)
                    : backward_by_formula(grad, logits, target, weight, terms);
    return result;
  }
};

// ATen raises the error for a class outside [0, columns).
bool classes_are_valid(const Tensor& target, int64_t columns, int64_t ignore_index) {
  const int64_t* classes = target.const_data_ptr<int64_t>();
  return std::all_of(classes, classes + target.numel(),
                     [&](int64_t c) { return c == ignore_index || (c >= 0 && c < columns); });
}

bool is_simple(const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
               const c10::SymInt& ignore_index) {
  if (!is_an_ordinary_tensor(logits) || !is_an_ordinary_tensor(target) || !is_an_ordinary_tensor(weight) ||
      c10::impl::TorchDispatchModeTLS::any_modes_set() || ignore_index.is_symbolic() || simulator::on()) {
    return false;
  }
  const c10::Device device = logits.device();
  return element_of(logits.scalar_type()).has_value() && logits.dim() == 2 && is_plain(logits, device) &&
         logits.numel() >= kOwnKernelElements && target.scalar_type() == at::kLong && target.dim() == 1 &&
         is_plain(target, device) && target.size(0) == logits.size(0) &&
         is_plain_float_or_absent(weight, device, logits.size(1)) && !(present(weight) && weight->requires_grad()) &&
         classes_are_valid(target, logits.size(1), ignore_index.expect_int());
}

Tensor fused_cross_entropy(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
                           c10::SymInt ignore_index, double label_smoothing) {
  const bool autocast = at::autocast::is_autocast_enabled(kNPU);
  const at::ScalarType result_type = autocast ? at::kFloat : logits.scalar_type();
  // ATen wants a weight of the logits' type, and smoothing within [0, 1]; its errors are for the rest.
  const bool fits = (!present(weight) || weight->scalar_type() == result_type) && label_smoothing >= 0.0 &&
                    label_smoothing <= 1.0 && reduction >= at::Reduction::None && reduction < at::Reduction::END;
  if (!fits || !is_simple(logits, target, weight, ignore_index)) {
    return at::compositeimplicitautograd::cross_entropy_loss_symint(logits, target, weight, reduction,
                                                                    std::move(ignore_index), label_smoothing);
  }
  return CrossEntropy::apply(logits, target, weight, reduction, ignore_index.expect_int(), label_smoothing,
                             result_type);
}

}  // namespace

void register_fused_cross_entropy(torch::Library& autograd) {
  autograd.impl("cross_entropy_loss", TORCH_FN(fused_cross_entropy));
}

}  // namespace cann::aten
