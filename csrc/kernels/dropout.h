#pragma once
// Dropout with its random numbers: a hash of (key, position), so that any part of a tensor can be drawn by itself and
// the result depends neither on the number of threads nor on the instruction set.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// What one call draws. An element is kept with probability `keep` / 2^32 and then multiplied by `scale`.
struct Dropout {
  uint64_t key;
  uint32_t keep;
  float scale;
};

// For elements first .. first + n of the tensor, which x, y and mask point at: mask = 0 or 1, y = x (mask ? scale : 0).
// `first` is a multiple of 4096. y may be x.
using DropoutKernel = void (*)(void* y, bool* mask, const void* x, const Dropout& dropout, uint64_t first, int64_t n);

// dx = dy (mask ? scale : 0); dx may be dy.
using DropoutBackwardKernel = void (*)(void* dx, const void* dy, const bool* mask, float scale, int64_t n);

struct DropoutKernels {
  DropoutKernel forward[kElements];
  DropoutBackwardKernel backward[kElements];
};

CANN_DECLARE_KERNELS(DropoutKernels, dropout)

}  // namespace cann::kernels
