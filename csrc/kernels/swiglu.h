#pragma once
// SwiGLU (Shazeer, arXiv:2002.05202): silu(gate) * up with silu(x) = x / (1 + e^-x), and its derivatives. 16-bit
// elements are computed in float and rounded once.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// y[i] = silu(gate[i]) up[i] for i < n. y may be either of the others.
using SwigluKernel = void (*)(void* y, const void* gate, const void* up, int64_t n);

// dgate[i] = dy[i] up[i] silu'(gate[i]) and dup[i] = dy[i] silu(gate[i]) for i < n.
using SwigluBackwardKernel = void (*)(void* dgate, void* dup, const void* dy, const void* gate, const void* up,
                                      int64_t n);

struct SwigluKernels {
  SwigluKernel forward[kElements];
  SwigluBackwardKernel backward[kElements];
};

CANN_DECLARE_KERNELS(SwigluKernels, swiglu)

}  // namespace cann::kernels
