#include "kernels/optimizer.h"

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// Vectors of one pass, the last of which may be short: reads and writes whole vectors or the first `count` elements.
struct Whole {
  template <class T>
  CANN_INLINE_MEMBER Vec read(const T* p) const {
    return load(p);
  }
  template <class T>
  CANN_INLINE_MEMBER void write(T* p, Vec v) const {
    store(p, v);
  }
};

struct Some {
  int64_t count;
  template <class T>
  CANN_INLINE_MEMBER Vec read(const T* p) const {
    return load_some(p, count);
  }
  template <class T>
  CANN_INLINE_MEMBER void write(T* p, Vec v) const {
    store_some(p, v, count);
  }
};

template <class T>
CANN_INLINE Vec read_gradient(T* grad, float grad_scale, bool maximize, auto access) {
  Vec g = access.read(grad);
  if (grad_scale != 1.0f) {
    g = g / broadcast(grad_scale);
    access.write(grad, g);
  }
  return maximize ? -g : g;
}

template <class T>
CANN_INLINE void adam_vector(T* param, T* grad, T* exp_avg, T* exp_avg_sq, T* max_exp_avg_sq, const AdamStep& s,
                             auto access) {
  Vec g = read_gradient(grad, s.grad_scale, s.maximize, access);
  Vec p = access.read(param), m = access.read(exp_avg);
  if (s.decay != 1.0f) p = p * broadcast(s.decay);
  if (s.l2 != 0.0f) g = fma(p, broadcast(s.l2), g);
  const Vec weight = broadcast(s.one_minus_beta1), distance = g - m;
  m = s.one_minus_beta1 < 0.5f ? fma(distance, weight, m) : fma(-distance, broadcast(1.0f) - weight, g);
  Vec v = access.read(exp_avg_sq) * broadcast(s.beta2);
  v = fma(broadcast(s.one_minus_beta2) * g, g, v);
  access.write(exp_avg, m);
  access.write(exp_avg_sq, v);
  if (max_exp_avg_sq != nullptr) {
    v = maximum(access.read(max_exp_avg_sq), v);
    access.write(max_exp_avg_sq, v);
  }
  const Vec denominator = sqrt(v) / broadcast(s.bias_correction2_sqrt) + broadcast(s.eps);
  access.write(param, p + (broadcast(s.step_size) * m) / denominator);
}

template <class T>
void adam_range(void* param_, void* grad_, void* exp_avg_, void* exp_avg_sq_, void* max_exp_avg_sq_,
                const AdamStep& step, int64_t n) {
  T *param = static_cast<T*>(param_), *grad = static_cast<T*>(grad_), *exp_avg = static_cast<T*>(exp_avg_),
    *exp_avg_sq = static_cast<T*>(exp_avg_sq_), *max_exp_avg_sq = static_cast<T*>(max_exp_avg_sq_);
  const AdamStep s = step;
  const auto at = [&](int64_t i, auto access) __attribute__((always_inline)) {
    adam_vector(param + i, grad + i, exp_avg + i, exp_avg_sq + i,
                max_exp_avg_sq == nullptr ? nullptr : max_exp_avg_sq + i, s, access);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) at(i, Whole{});
  if (i < n) at(i, Some{n - i});
}

template <class T>
CANN_INLINE void sgd_vector(T* param, T* grad, T* buffer, const SgdStep& s, auto access) {
  Vec g = read_gradient(grad, s.grad_scale, s.maximize, access);
  const Vec p = access.read(param);
  if (s.l2 != 0.0f) g = fma(p, broadcast(s.l2), g);
  if (buffer != nullptr) {
    const Vec momentum = broadcast(s.momentum);
    const Vec b = s.first ? g : fma(g, broadcast(s.one_minus_dampening), access.read(buffer) * momentum);
    access.write(buffer, b);
    g = s.nesterov ? fma(b, momentum, g) : b;
  }
  access.write(param, fma(g, broadcast(-s.lr), p));
}

template <class T>
void sgd_range(void* param_, void* grad_, void* momentum_buffer_, const SgdStep& step, int64_t n) {
  T *param = static_cast<T*>(param_), *grad = static_cast<T*>(grad_), *buffer = static_cast<T*>(momentum_buffer_);
  const SgdStep s = step;
  const auto at = [&](int64_t i, auto access) __attribute__((always_inline)) {
    sgd_vector(param + i, grad + i, buffer == nullptr ? nullptr : buffer + i, s, access);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) at(i, Whole{});
  if (i < n) at(i, Some{n - i});
}

}  // namespace

extern const OptimizerKernels optimizer = {
    .adam = {&adam_range<float>, &adam_range<BFloat16>, &adam_range<Half>},
    .sgd = {&sgd_range<float>, &sgd_range<BFloat16>, &sgd_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
