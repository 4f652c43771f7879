#pragma once
// Softmax and log-softmax over rows of contiguous elements, one row after the other, and their derivatives. 16-bit
// elements are computed in float and rounded once.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// y = e^(x - max) / sum e^(x - max), or its logarithm x - max - log(sum ...), over each row. y may be x.
using SoftmaxKernel = void (*)(void* y, const void* x, int64_t rows, int64_t columns);
// dx from dy and the forward result y: (dy - sum dy y) y, or for the logarithm dy - e^y sum dy. dx may be dy, unless
// `past_caches` asks for stores that leave the caches alone: for results too large to be found there by the next
// reader. (The forward gains nothing by them: it computes between its stores.)
using SoftmaxBackwardKernel = void (*)(void* dx, const void* dy, const void* y, int64_t rows, int64_t columns,
                                       bool past_caches);

struct SoftmaxKernels {
  SoftmaxKernel softmax[kElements];
  SoftmaxKernel log_softmax[kElements];
  SoftmaxBackwardKernel softmax_backward[kElements];
  SoftmaxBackwardKernel log_softmax_backward[kElements];
};

CANN_DECLARE_KERNELS(SoftmaxKernels, softmax)

}  // namespace cann::kernels
