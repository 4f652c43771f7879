// GELU, SiLU and their derivatives of float32 and 16-bit tensors by kernels of our own, whatever the size and the
// strides, so that an element's result depends on neither its place nor the batch: a micro-batch gives what it gives
// within the whole batch. Results do not depend on the number of threads; they differ from the CPU's in the last bits.
// Other types, and arguments of several types, are ATen's.

#include "aten/fused/activation.h"

#include <ATen/TensorIterator.h>

#include "aten/contiguous_runs.h"
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

// Whether our kernels compute `first`'s type, and all tensors have it.
bool have_own_type(const Tensor& first, const auto&... rest) {
  const at::ScalarType type = first.scalar_type();
  return element_of(type).has_value() && ((rest.scalar_type() == type) && ...);
}

// ---- Memory without gaps

bool is_dense(const Tensor& tensor) {
  return tensor.numel() > 0 && tensor.device().type() == kNPU && is_raw_memory(*tensor.unsafeGetTensorImpl()) &&
         tensor.is_non_overlapping_and_dense();
}

bool are_dense_alike(const Tensor& a, const Tensor& b) {
  return is_dense(a) && is_dense(b) && a.device() == b.device() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// y = f(x), or dy f'(x) where there is a `dy`; all dense alike. `y` may be `x`.
void compute(Activation of, const Tensor& y, const Tensor* dy, const Tensor& x) {
  const int64_t bytes = x.element_size();
  const bool past_caches = !y.is_same(x) && is_past_caches(x.numel() * bytes);
  const kernels::ActivationKernels& table = *kernels::kernels().activation;
  const int kind = static_cast<int>(of), element = static_cast<int>(*element_of(x.scalar_type()));
  char* to = static_cast<char*>(y.mutable_data_ptr());
  const char* from = static_cast<const char*>(x.const_data_ptr());
  const char* grad = dy == nullptr ? nullptr : static_cast<const char*>(dy->const_data_ptr());
  parallel_elements(x.numel(), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * bytes, n = end - begin;
    if (grad == nullptr) {
      table.forward[kind][element](to + first, from + first, n, past_caches);
    } else {
      table.backward[kind][element](to + first, grad + first, from + first, n, past_caches);
    }
  });
}

Tensor computed(Activation of, const Tensor* dy, const Tensor& x) {
  Tensor y = empty_like_dense(x);
  cann::check_host_can_write(y.const_data_ptr(), y.nbytes());
  compute(of, y, dy, x);
  return y;
}

// ---- Any strides: on CPU aliases, `y` undefined for a new tensor

Tensor& iterate_forward(Activation of, Tensor& y, const Tensor& x) {
  at::TensorIterator iterator = at::TensorIterator::unary_op(y, x);
  const auto kernel =
      kernels::kernels().activation->forward[static_cast<int>(of)][static_cast<int>(*element_of(x.scalar_type()))];
  for_each_contiguous_run(iterator, [&](char* const* data, int64_t n) { kernel(data[0], data[1], n, false); });
  return y = iterator.output();
}

Tensor& iterate_backward(Activation of, Tensor& dx, const Tensor& dy, const Tensor& x) {
  at::TensorIterator iterator = at::TensorIterator::binary_op(dx, dy, x);
  const auto kernel =
      kernels::kernels().activation->backward[static_cast<int>(of)][static_cast<int>(*element_of(x.scalar_type()))];
  for_each_contiguous_run(iterator, [&](char* const* data, int64_t n) { kernel(data[0], data[1], data[2], n, false); });
  return dx = iterator.output();
}

// The operator `Op` on CPU aliases, as DirectKernel calls it.
template <class Op>
struct Iterated : Op {
  static Tensor redispatch(c10::DispatchKeySet, const Tensor& x, Activation of) {
    Tensor y;
    return iterate_forward(of, y, x);
  }
  static Tensor& redispatch(c10::DispatchKeySet, Tensor& x, Activation of) { return iterate_forward(of, x, x); }
  static Tensor& redispatch(c10::DispatchKeySet, const Tensor& x, Activation of, Tensor& y) {
    return iterate_forward(of, y, x);
  }
  static Tensor redispatch(c10::DispatchKeySet, const Tensor& dy, const Tensor& x, Activation of) {
    Tensor dx;
    return iterate_backward(of, dx, dy, x);
  }
  static Tensor& redispatch(c10::DispatchKeySet, const Tensor& dy, const Tensor& x, Activation of, Tensor& dx) {
    return iterate_backward(of, dx, dy, x);
  }
};

template <class Op, class Schema, class... A>
decltype(auto) iterated(A&&... args) {
  return DirectKernel<Iterated<Op>, Schema>::run(std::forward<A>(args)...);
}

// ---- Operators: of `kOf`, of tensors of a type of our own

template <class Op>
Tensor forward(Activation of, const Tensor& x) {
  return is_dense(x) ? computed(of, nullptr, x) : iterated<Op, Tensor(const Tensor&, Activation)>(x, of);
}

template <class Op>
Tensor& forward_(Activation of, Tensor& x) {
  if (!is_dense(x)) return iterated<Op, Tensor&(Tensor&, Activation)>(x, of);
  compute(of, x, nullptr, x);
  return x;
}

template <class Op>
Tensor& forward_out(Activation of, const Tensor& x, Tensor& y) {
  return iterated<Op, Tensor&(const Tensor&, Activation, Tensor&)>(x, of, y);
}

template <class Op>
Tensor backward(Activation of, const Tensor& dy, const Tensor& x) {
  return are_dense_alike(dy, x) ? computed(of, &dy, x)
                                : iterated<Op, Tensor(const Tensor&, const Tensor&, Activation)>(dy, x, of);
}

template <class Op>
Tensor& backward_out(Activation of, const Tensor& dy, const Tensor& x, Tensor& dx) {
  return iterated<Op, Tensor&(const Tensor&, const Tensor&, Activation, Tensor&)>(dy, x, of, dx);
}

Tensor gelu(const Tensor& self, c10::string_view approximate) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && have_own_type(self) ? forward<ops::gelu>(*kind, self)
                                                 : general<ops::gelu>(self, approximate);
}

Tensor& gelu_(Tensor& self, c10::string_view approximate) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && have_own_type(self) ? forward_<ops::gelu_>(*kind, self)
                                                 : general<ops::gelu_>(self, approximate);
}

Tensor& gelu_out(const Tensor& self, c10::string_view approximate, Tensor& out) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && have_own_type(self, out) ? forward_out<ops::gelu_out>(*kind, self, out)
                                                      : general<ops::gelu_out>(self, approximate, out);
}

Tensor gelu_backward(const Tensor& grad_output, const Tensor& self, c10::string_view approximate) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && have_own_type(self, grad_output)
             ? backward<ops::gelu_backward>(*kind, grad_output, self)
             : general<ops::gelu_backward>(grad_output, self, approximate);
}

Tensor& gelu_backward_out(const Tensor& grad_output, const Tensor& self, c10::string_view approximate, Tensor& out) {
  const auto kind = gelu_kind(approximate);
  return kind.has_value() && have_own_type(self, grad_output, out)
             ? backward_out<ops::gelu_backward_grad_input>(*kind, grad_output, self, out)
             : general<ops::gelu_backward_grad_input>(grad_output, self, approximate, out);
}

Tensor silu(const Tensor& self) {
  return have_own_type(self) ? forward<ops::silu>(Activation::kSilu, self) : general<ops::silu>(self);
}

Tensor& silu_(Tensor& self) {
  return have_own_type(self) ? forward_<ops::silu_>(Activation::kSilu, self) : general<ops::silu_>(self);
}

Tensor& silu_out(const Tensor& self, Tensor& out) {
  return have_own_type(self, out) ? forward_out<ops::silu_out>(Activation::kSilu, self, out)
                                  : general<ops::silu_out>(self, out);
}

Tensor silu_backward(const Tensor& grad_output, const Tensor& self) {
  return have_own_type(self, grad_output) ? backward<ops::silu_backward>(Activation::kSilu, grad_output, self)
                                          : general<ops::silu_backward>(grad_output, self);
}

Tensor& silu_backward_out(const Tensor& grad_output, const Tensor& self, Tensor& out) {
  return have_own_type(self, grad_output, out)
             ? backward_out<ops::silu_backward_grad_input>(Activation::kSilu, grad_output, self, out)
             : general<ops::silu_backward_grad_input>(grad_output, self, out);
}

}  // namespace

void register_fused_activations(torch::Library& aten) {
  register_native<ops::gelu, &gelu>(aten);
  register_native<ops::gelu_, &gelu_>(aten);
  register_native<ops::gelu_out, &gelu_out>(aten);
  register_native<ops::gelu_backward, &gelu_backward>(aten);
  register_native<ops::gelu_backward_grad_input, &gelu_backward_out>(aten);
  register_native<ops::silu, &silu>(aten);
  register_native<ops::silu_, &silu_>(aten);
  register_native<ops::silu_out, &silu_out>(aten);
  register_native<ops::silu_backward, &silu_backward>(aten);
  register_native<ops::silu_backward_grad_input, &silu_backward_out>(aten);
}

}  // namespace cann::aten
