#pragma once
// GELU (Hendrycks and Gimpel, arXiv:1606.08415) and its derivative on a range; computed in float, rounded once.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// y = x P(X < x) for X of the standard normal distribution.
using GeluKernel = void (*)(void* y, const void* x, int64_t n);
// dx = dy (P(X < x) + x p(x)), p the density. dx may be dy.
using GeluBackwardKernel = void (*)(void* dx, const void* dy, const void* x, int64_t n);

struct ActivationKernels {
  GeluKernel gelu[kElements];
  GeluBackwardKernel gelu_backward[kElements];
};

CANN_DECLARE_KERNELS(ActivationKernels, activation)

}  // namespace cann::kernels
