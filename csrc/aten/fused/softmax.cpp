// Softmax and log-softmax of contiguous float32 and 16-bit tensors over their last dimension; others take the direct
// kernel. Results do not depend on the number of threads; they differ from the CPU's in the last bits.

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/past_caches.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;

bool is_over_rows(const Tensor& tensor, int64_t dim) {
  return tensor.defined() && tensor.dim() > 0 && (dim == -1 || dim == tensor.dim() - 1) &&
         tensor.numel() >= kOwnKernelElements && element_of(tensor.scalar_type()).has_value() &&
         is_plain(tensor, tensor.device());
}

template <class Op, kernels::SoftmaxKernel (kernels::SoftmaxKernels::*kKernel)[kernels::kElements]>
Tensor forward(const Tensor& self, int64_t dim, bool half_to_float) {
  if (half_to_float || !is_over_rows(self, dim)) return general<Op>(self, dim, half_to_float);
  const int64_t columns = self.size(-1), row_bytes = columns * self.element_size();
  Tensor result = empty_like_dense(self);
  const char* x = static_cast<const char*>(self.const_data_ptr());
  char* y = static_cast<char*>(result.mutable_data_ptr());
  const auto kernel = (kernels::kernels().softmax->*kKernel)[static_cast<int>(*element_of(self.scalar_type()))];
  parallel(self.numel() / columns, columns, [&](int64_t begin, int64_t end) {
    kernel(y + begin * row_bytes, x + begin * row_bytes, end - begin, columns);
  });
  return result;
}

template <class Op, kernels::SoftmaxBackwardKernel (kernels::SoftmaxKernels::*kKernel)[kernels::kElements]>
Tensor backward(const Tensor& grad_output, const Tensor& output, int64_t dim, at::ScalarType input_dtype) {
  if (!is_over_rows(output, dim) || !is_plain(grad_output, output.device()) || grad_output.sizes() != output.sizes() ||
      input_dtype != output.scalar_type() || grad_output.scalar_type() != output.scalar_type()) {
    return general<Op>(grad_output, output, dim, input_dtype);
  }
  const int64_t columns = output.size(-1), row_bytes = columns * output.element_size();
  Tensor result = empty_like_dense(output);
  const char *dy = static_cast<const char*>(grad_output.const_data_ptr()),
             *y = static_cast<const char*>(output.const_data_ptr());
  char* dx = static_cast<char*>(result.mutable_data_ptr());
  const bool past_caches = is_past_caches(output.numel() * output.element_size());
  const auto kernel = (kernels::kernels().softmax->*kKernel)[static_cast<int>(*element_of(output.scalar_type()))];
  parallel(output.numel() / columns, columns, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * row_bytes;
    kernel(dx + at, dy + at, y + at, end - begin, columns, past_caches);
  });
  return result;
}

}  // namespace

void register_fused_softmax(torch::Library& aten) {
  namespace ops = at::_ops;
  using kernels::SoftmaxKernels;
  register_native<ops::_softmax, &forward<ops::_softmax, &SoftmaxKernels::softmax>>(aten);
  register_native<ops::_log_softmax, &forward<ops::_log_softmax, &SoftmaxKernels::log_softmax>>(aten);
  register_native<ops::_softmax_backward_data,
                  &backward<ops::_softmax_backward_data, &SoftmaxKernels::softmax_backward>>(aten);
  register_native<ops::_log_softmax_backward_data,
                  &backward<ops::_log_softmax_backward_data, &SoftmaxKernels::log_softmax_backward>>(aten);
}

}  // namespace cann::aten
