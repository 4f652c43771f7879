#pragma once
// What is done to gradients between backward pass and optimizer: their norm, and gradient scaling undone.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// The sum of x^2 over a range. Sums of 4096 elements are accumulated in float by several vectors, their sum in double:
// the result depends on the instruction set, but not on how callers split a range at multiples of 4096.
using SumOfSquaresKernel = double (*)(const void* x, int64_t n);

// x *= scale for the range (left alone when scale is 1). Returns whether an element was infinite or NaN before.
using UnscaleKernel = bool (*)(void* x, float scale, int64_t n);

struct GradientKernels {
  SumOfSquaresKernel sum_of_squares[kElements];
  UnscaleKernel unscale[kElements];
};

CANN_DECLARE_KERNELS(GradientKernels, gradients)

}  // namespace cann::kernels
