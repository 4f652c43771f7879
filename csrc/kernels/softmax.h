#pragma once
// Softmax and log-softmax over rows of contiguous float32 elements, one row after the other, and their derivatives.

#include <cstdint>

#include "kernels/declare.h"

namespace cann::kernels {

// y = e^(x - max) / sum e^(x - max), or its logarithm x - max - log(sum ...), over each row. y may be x.
using SoftmaxKernel = void (*)(float* y, const float* x, int64_t rows, int64_t columns);
// dx from dy and the forward result y: (dy - sum dy y) y, or for the logarithm dy - e^y sum dy. dx may be dy.
using SoftmaxBackwardKernel = void (*)(float* dx, const float* dy, const float* y, int64_t rows, int64_t columns);

struct SoftmaxKernels {
  SoftmaxKernel softmax;
  SoftmaxKernel log_softmax;
  SoftmaxBackwardKernel softmax_backward;
  SoftmaxBackwardKernel log_softmax_backward;
};

CANN_DECLARE_KERNELS(SoftmaxKernels, softmax)

}  // namespace cann::kernels
