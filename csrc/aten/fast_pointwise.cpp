#include "aten/fast_pointwise.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/kernel_choice.h"
#include "aten/parallel.h"
#include "kernels/kernels.h"
#include "runtime/device.h"
#include "runtime/host_guard.h"
#include "runtime/reach.h"
#include "runtime/thread_state.h"

namespace cann::aten::fast {
namespace {

using c10::TensorImpl;

// Above it ATen's kernels use several threads, as good as any; from kMinStreamedBytes on, which no cache of a core
// holds, a result is written past the caches, which ATen's do not. Measured on two threads: `a + b` alone is 1.25
// to 1.9 times as fast so from 8 MiB on, but with the product that reads it afterwards 0.7 up to 24 MiB, 0.9 at 32
// and 1.06 at 64: the next operator finds small results in the last cache. Norms and softmax, which read twice, differ
// (past_caches.h).
constexpr int64_t kMaxElements = at::internal::GRAIN_SIZE;
constexpr int64_t kMinStreamedBytes = int64_t{32} << 20;

std::optional<kernels::Element> element_of(const TensorImpl& t) {
  return aten::element_of(c10::typeMetaToScalarType(t.dtype()));
}

// Strides are what at::empty(sizes) has, so that a result's strides need no thought.
bool has_canonical_strides(const TensorImpl& t) {
  int64_t expected = 1;
  for (int64_t dim = t.dim() - 1; dim >= 0; --dim) {
    if (t.strides()[dim] != expected) return false;
    expected *= t.sizes()[dim];
  }
  return true;
}

bool is_small(const TensorImpl& t) { return t.numel() <= kMaxElements; }

bool is_plain(const TensorImpl& t) { return is_raw_memory(t) && has_canonical_strides(t); }

bool is_plain_npu(const TensorImpl& t) { return t.device().type() == kNPU && is_plain(t); }

bool same_kind(const TensorImpl& a, const TensorImpl& b) {
  return a.dtype() == b.dtype() && a.device() == b.device() && a.sizes() == b.sizes();
}

// Partial overlap is an error, which the usual way raises.
bool same_or_disjoint(const void* a, const void* b, size_t bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x == y || x + bytes <= y || y + bytes <= x;
}

at::Tensor empty_like(const TensorImpl& t) {
  ensure_thread_ready();
  return empty_contiguous(t.sizes(), c10::typeMetaToScalarType(t.dtype()), t.device());
}

kernels::PointwiseKernel kernel_of(Pointwise op, kernels::Element element) {
  return kernels::kernels().pointwise->get(op, element);
}

// out[i] = op(a[i], b[i]; s).
void stream(Pointwise op, float* out, const float* a, const float* b, float s, int64_t n) {
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel = kernels::kernels().pointwise->streaming[static_cast<int>(op)];
  parallel_elements(n, [&](int64_t begin, int64_t end) {
    kernel(out + begin, a + begin, b == nullptr ? nullptr : b + begin, nullptr, s, end - begin);
  });
}

// `a` is plain and on the npu; `b`, unless nullptr, has as many elements.
bool compute(at::Tensor& result, Pointwise op, const at::Tensor& a, const void* b, float s) {
  const TensorImpl& impl = *a.unsafeGetTensorImpl();
  const auto element = element_of(impl);
  if (!element.has_value()) return false;
  const int64_t n = impl.numel(), bytes = n * static_cast<int64_t>(impl.itemsize());
  if (is_small(impl)) {
    result = empty_like(impl);
    kernel_of(op, *element)(result.mutable_data_ptr(), a.const_data_ptr(), b, nullptr, s, n);
    return true;
  }
  if (*element != kernels::Element::kFloat32 || bytes < kMinStreamedBytes) return false;
  result = empty_like(impl);
  cann::check_host_can_write(result.const_data_ptr(), bytes);
  stream(op, result.mutable_data_ptr<float>(), a.const_data_ptr<float>(), static_cast<const float*>(b), s, n);
  return true;
}

// Beyond 2^53 a double would round before the kernel does.
std::optional<double> exact(int64_t value) {
  constexpr int64_t kLimit = int64_t{1} << 53;
  if (value < -kLimit || value > kLimit) return std::nullopt;
  return static_cast<double>(value);
}

}  // namespace

std::optional<double> number(const at::Tensor& t) {
  const TensorImpl& impl = *t.unsafeGetTensorImpl();
  if (!impl.is_wrapped_number() || impl.device().type() != c10::kCPU) return std::nullopt;
  // PyTorch makes a Python float a double, an int a long.
  if (t.scalar_type() == at::kDouble) return *t.const_data_ptr<double>();
  if (t.scalar_type() == at::kLong) return exact(*t.const_data_ptr<int64_t>());
  return std::nullopt;
}

std::optional<double> number(const at::Scalar& s) {
  if (s.isFloatingPoint() && !s.isSymbolic()) return s.toDouble();
  if (s.isIntegral(/*includeBool=*/false) && !s.isSymbolic()) return exact(s.toLong());
  return std::nullopt;
}

bool unary(at::Tensor& result, Pointwise op, const at::Tensor& a, double s) {
  return is_plain_npu(*a.unsafeGetTensorImpl()) && compute(result, op, a, nullptr, static_cast<float>(s));
}

bool binary(at::Tensor& result, Pointwise op, const at::Tensor& a, const at::Tensor& b, double s) {
  const TensorImpl &x = *a.unsafeGetTensorImpl(), &y = *b.unsafeGetTensorImpl();
  return is_plain_npu(x) && same_kind(x, y) && is_plain(y) &&
         compute(result, op, a, b.const_data_ptr(), static_cast<float>(s));
}

bool unary_inplace(Pointwise op, at::Tensor& a, double s) {
  const TensorImpl& impl = *a.unsafeGetTensorImpl();
  const auto element = element_of(impl);
  if (!element.has_value() || !is_small(impl) || !is_plain_npu(impl)) return false;
  ensure_thread_ready();
  void* data = a.mutable_data_ptr();
  kernel_of(op, *element)(data, data, nullptr, nullptr, static_cast<float>(s), impl.numel());
  return true;
}

bool binary_inplace(Pointwise op, at::Tensor& a, const at::Tensor& b, double s) {
  const TensorImpl &x = *a.unsafeGetTensorImpl(), &y = *b.unsafeGetTensorImpl();
  const auto element = element_of(x);
  if (!element.has_value() || !is_small(x) || !is_plain_npu(x) || !same_kind(x, y) || !is_plain(y)) return false;
  ensure_thread_ready();
  void* data = a.mutable_data_ptr();
  const void* other = b.const_data_ptr();
  if (!same_or_disjoint(data, other, x.numel() * x.itemsize())) return false;
  kernel_of(op, *element)(data, data, other, nullptr, static_cast<float>(s), x.numel());
  return true;
}

bool overflows(double s) { return std::isfinite(s) && std::abs(s) > std::numeric_limits<float>::max(); }

double rounded(double s, const at::Tensor& like) {
  switch (like.scalar_type()) {
    case at::kBFloat16:
      return c10::BFloat16(static_cast<float>(s));
    case at::kHalf:
      return c10::Half(static_cast<float>(s));
    default:
      return s;
  }
}

bool clamp(at::Tensor& result, const at::Tensor& a, const std::optional<at::Scalar>& low,
           const std::optional<at::Scalar>& high) {
  const auto min = low.has_value() ? number(*low) : -std::numeric_limits<double>::infinity();
  const auto max = high.has_value() ? number(*high) : std::numeric_limits<double>::infinity();
  // A NaN as bound has a rule of its own; 16-bit tensors round the bounds first.
  if (!min.has_value() || !max.has_value() || !(*min <= *max) || overflows(*min) || overflows(*max) ||
      a.scalar_type() != at::kFloat || !is_small(*a.unsafeGetTensorImpl())) {
    return false;
  }
  if (!unary(result, Pointwise::kClampMin, a, *min)) return false;
  return unary_inplace(Pointwise::kClampMax, result, *max);
}

bool fill(at::Tensor& self, const at::Scalar& value) {
  const TensorImpl& impl = *self.unsafeGetTensorImpl();
  const auto s = number(value);
  if (!s.has_value() || !is_small(impl) || !is_plain_npu(impl)) return false;
  ensure_thread_ready();
  if (*s == 0 && !std::signbit(*s)) {  // all bits zero, in every dtype
    std::memset(self.mutable_data_ptr(), 0, impl.numel() * impl.itemsize());
    return true;
  }
  if (impl.dtype() != caffe2::TypeMeta::Make<float>() || overflows(*s)) return false;
  auto* data = self.mutable_data_ptr<float>();
  std::fill(data, data + impl.numel(), static_cast<float>(*s));
  return true;
}

bool copy(at::Tensor& self, const at::Tensor& source) {
  const TensorImpl &to = *self.unsafeGetTensorImpl(), &from = *source.unsafeGetTensorImpl();
  if (!is_small(to) || to.dtype() != from.dtype() || to.sizes() != from.sizes() || !is_plain(to) || !is_plain(from))
    return false;
  ensure_thread_ready();
  void* data = self.mutable_data_ptr();
  const void* other = source.const_data_ptr();
  const size_t bytes = to.numel() * to.itemsize();
  if (!same_or_disjoint(data, other, bytes)) return false;
  if (data != other) std::memcpy(data, other, bytes);
  return true;
}

bool clone(at::Tensor& result, const at::Tensor& self) {
  const TensorImpl& impl = *self.unsafeGetTensorImpl();
  if (!is_small(impl) || !is_plain_npu(impl)) return false;
  result = empty_like(impl);
  std::memcpy(result.mutable_data_ptr(), self.const_data_ptr(), impl.numel() * impl.itemsize());
  return true;
}

}  // namespace cann::aten::fast
