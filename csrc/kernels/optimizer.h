#pragma once
// One step of an optimizer on a range of a parameter and its state, in one pass over memory.
//
// The arithmetic is that of torch.optim's default implementations, operation by operation and with their roundings in
// float32, so that a fused optimizer gives the default one's numbers to the bit. 16-bit parameters are computed in
// float and rounded once per stored value.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// Adam (Kingma and Ba, arXiv:1412.6980) and AdamW (Loshchilov and Hutter, arXiv:1711.05101), in torch.optim's form:
//   g = grad / grad_scale, negated to maximize;  p *= decay;  g += l2 * p
//   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  u = vmax ? vmax = max(vmax, v) : v
//   p += step_size * m / (sqrt(u) / bias_correction2_sqrt + eps)
struct AdamStep {
  float grad_scale = 1.0f;  // when not 1, grad / grad_scale is stored in grad
  bool maximize = false;
  float decay = 1.0f;  // AdamW's 1 - lr * weight_decay
  float l2 = 0.0f;     // Adam's weight_decay
  float one_minus_beta1 = 0.0f;
  float beta2 = 0.0f;
  float one_minus_beta2 = 0.0f;
  float bias_correction2_sqrt = 1.0f;
  float eps = 0.0f;
  float step_size = 0.0f;  // -lr / (1 - beta1^step)
};

// max_exp_avg_sq is nullptr unless amsgrad.
using AdamKernel = void (*)(void* param, void* grad, void* exp_avg, void* exp_avg_sq, void* max_exp_avg_sq,
                            const AdamStep& step, int64_t n);

// Stochastic gradient descent in torch.optim's form:
//   g = grad / grad_scale, negated to maximize;  g += l2 * p
//   b = first ? g : momentum b + (1 - dampening) g;  g = nesterov ? g + momentum b : b;  p -= lr g
struct SgdStep {
  float grad_scale = 1.0f;  // when not 1, grad / grad_scale is stored in grad
  bool maximize = false;
  float l2 = 0.0f;
  float momentum = 0.0f;
  float one_minus_dampening = 1.0f;
  bool nesterov = false;
  bool first = false;
  float lr = 0.0f;
};

// momentum_buffer is nullptr without momentum.
using SgdKernel = void (*)(void* param, void* grad, void* momentum_buffer, const SgdStep& step, int64_t n);

struct OptimizerKernels {
  AdamKernel adam[kElements];
  SgdKernel sgd[kElements];
};

CANN_DECLARE_KERNELS(OptimizerKernels, optimizer)

}  // namespace cann::kernels
