#pragma once
// Rotary position embedding (Su et al., arXiv:2104.09864) of rows, y = x cos + R(x) sin, and its derivatives.
//
// R turns the two elements of each pair by a right angle, (a, b) to (-b, a). A pair is (x[i], x[columns / 2 + i]) in
// "half" order and (x[2i], x[2i + 1]) in "interleaved" order. 16-bit elements are computed in float and rounded once.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// Rows of `columns` (even) contiguous elements, and how many elements lie from one row to the next in each operand;
// 0 where all rows share one. Cosines and sines are laid out alike.
struct RotaryRows {
  int64_t rows;
  int64_t columns;
  int64_t x_stride;
  int64_t y_stride;  // of y; of dx in the backward
  int64_t table_stride;
  int64_t dy_stride = 0;
};

// y must not overlap x.
using RotaryKernel = void (*)(void* y, const void* x, const void* cos, const void* sin, const RotaryRows& layout);

// dx = dy cos - R(dy sin), since R is its own negative transpose. Adds the sums over rows of dy x to dcos and of
// dy R(x) to dsin, [columns] each. All rows share one row of cosines and sines, whatever the stride says.
using RotaryBackwardKernel = void (*)(void* dx, float* dcos, float* dsin, const void* dy, const void* x,
                                      const void* cos, const void* sin, const RotaryRows& layout);

// By order (half, interleaved) and element.
struct RotaryKernels {
  RotaryKernel forward[2][kElements];
  RotaryBackwardKernel backward[2][kElements];
};

CANN_DECLARE_KERNELS(RotaryKernels, rotary)

}  // namespace cann::kernels
