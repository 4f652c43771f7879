#pragma once
// Activations whose value takes an exponential, and their derivatives, on ranges of one element type; computed in
// float, 16-bit elements rounded once. An element's bits depend on its value alone, not on its place in the range.
// GELU: Hendrycks and Gimpel, arXiv:1606.08415; SiLU: Elfwing et al., arXiv:1702.03118.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

enum class Activation {
  kGelu,      // x P(X < x), X of the standard normal distribution
  kGeluTanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kSilu,      // x / (1 + e^-x)
};
inline constexpr int kActivations = 3;

// y[i] = f(x[i]) for i < n; y may be x. At -infinity all are NaN, as PyTorch's are, and at both infinities so are the
// derivatives: infinity times zero. `past_caches` asks for stores that leave the caches alone, for results too large to
// be found there by the next reader; y must then not be x.
using ActivationKernel = void (*)(void* y, const void* x, int64_t n, bool past_caches);
// dx[i] = dy[i] f'(x[i]); dx may be dy or x, unless past_caches.
using ActivationBackwardKernel = void (*)(void* dx, const void* dy, const void* x, int64_t n, bool past_caches);

struct ActivationKernels {
  ActivationKernel forward[kActivations][kElements];
  ActivationBackwardKernel backward[kActivations][kElements];
};

CANN_DECLARE_KERNELS(ActivationKernels, activation)

}  // namespace cann::kernels
