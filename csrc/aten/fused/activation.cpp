// GELU, SiLU and their derivatives of float32 and 16-bit tensors without gaps, in any order of dimensions; others take
// the direct kernel. Small tensors too, so that a micro-batch gives what it gives within the whole batch. Results do
// not depend on the number of threads; they differ from the CPU's in the last bits, and GELU has its limits at the
// infinities, where the CPU's float32 kernel has NaN.

#include "aten/fused/activation.h"

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/past_caches.h"
#include "aten/fused/plain.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using kernels::Activation;
namespace ops = at::_ops;

// The kernel's index, nothing for a name that ATen refuses.
std::optional<Activation> gelu_kind(c10::string_view approximate) {
  if (approximate == "none") return Activation::kGelu;
  if (approximate == "tanh") return Activation::kGeluTanh;
  return std::nullopt;
}

bool is_dense(const Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.device().type() == kNPU &&
         is_raw_memory(*tensor.unsafeGetTensorImpl()) && tensor.is_non_overlapping_and_dense() &&
         element_of(tensor.scalar_type()).has_value();
}

bool are_dense_alike(const Tensor& a, const Tensor& b) {
  return is_dense(a) && is_dense(b) && a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Both are dense alike; `y` may be `x`.
void compute(Activation of, const Tensor& y, const Tensor& x) {
  const int64_t bytes = x.element_size();
  const bool past_caches = !y.is_same(x) && is_past_caches(x.numel() * bytes);
  const auto kernel =
      kernels::kernels().activation->forward[static_cast<int>(of)][static_cast<int>(*element_of(x.scalar_type()))];
  char* to = static_cast<char*>(y.mutable_data_ptr());
  const char* from = static_cast<const char*>(x.const_data_ptr());
  parallel_elements(x.numel(), [&](int64_t begin, int64_t end) {
    kernel(to + begin * bytes, from + begin * bytes, end - begin, past_caches);
  });
}

Tensor computed(Activation of, const Tensor& x) {
  Tensor y = empty_like_dense(x);
  cann::check_host_can_write(y.const_data_ptr(), y.nbytes());
  compute(of, y, x);
  return y;
}

Tensor derivative(Activation of, const Tensor& dy, const Tensor& x) {
  Tensor dx = empty_like_dense(x);
  cann::check_host_can_write(dx.const_data_ptr(), dx.nbytes());
  const int64_t bytes = x.element_size();
  const bool past_caches = is_past_caches(x.numel() * bytes);
  const auto kernel =
      kernels::kernels().activation->backward[static_cast<int>(of)][static_cast<int>(*element_of(x.scalar_type()))];
  char* to = static_cast<char*>(dx.mutable_data_ptr());
  const char *grad = static_cast<const char*>(dy.const_data_ptr()),
             *from = static_cast<const char*>(x.const_data_ptr());
  parallel_elements(x.numel(), [&](int64_t begin, int64_t end) {
    kernel(to + begin * bytes, grad + begin * bytes, from + begin * bytes, end - begin, past_caches);
  });
  return dx;
}

Tensor gelu(const Tensor& self, c10::string_view approximate) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && is_dense(self) ? computed(*kind, self) : general<ops::gelu>(self, approximate);
}

Tensor gelu_backward(const Tensor& grad_output, const Tensor& self, c10::string_view approximate) {
  const auto kind = gelu_kind(approximate);
  if (!kind.has_value() || !are_dense_alike(grad_output, self)) {
    return general<ops::gelu_backward>(grad_output, self, approximate);
  }
  return derivative(*kind, grad_output, self);
}

Tensor silu(const Tensor& self) {
  return is_dense(self) ? computed(Activation::kSilu, self) : general<ops::silu>(self);
}

Tensor& silu_(Tensor& self) {
  if (!is_dense(self)) return general<ops::silu_>(self);
  compute(Activation::kSilu, self, self);
  return self;
}

Tensor silu_backward(const Tensor& grad_output, const Tensor& self) {
  return are_dense_alike(grad_output, self) ? derivative(Activation::kSilu, grad_output, self)
                                            : general<ops::silu_backward>(grad_output, self);
}

}  // namespace

void register_fused_activations(torch::Library& aten) {
  register_native<ops::gelu, &gelu>(aten);
  register_native<ops::gelu_backward, &gelu_backward>(aten);
  register_native<ops::silu, &silu>(aten);
  register_native<ops::silu_, &silu_>(aten);
  register_native<ops::silu_backward, &silu_backward>(aten);
}

}  // namespace cann::aten
