#pragma once
// The cross entropy of rows of logits against one class each, and its derivative, without the softmax between them.
//
// With log p_c = x_c - lse, the loss of a row of class t is torch.nn.functional.cross_entropy's
//   (1 - s) w_t (-log p_t) + s / columns * sum_c w_c (-log p_c),  s the label smoothing, w all ones without weights
// and of a row whose class is ignore_index zero, whatever its logits.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// What all rows share. `weight` has [columns] elements or is nullptr; `weight_sum` is its sum, or `columns` without.
struct CrossEntropy {
  int64_t columns = 0;
  const float* weight = nullptr;
  double weight_sum = 0;
  int64_t ignore_index = 0;
  double label_smoothing = 0;
};

// Writes the loss of each row, [rows], and its statistics, [rows, 2]: the largest logit m and log sum_c e^(x_c - m),
// which add up to lse but are kept apart, since their sum would lose digits. Those of ignored rows are zero. Classes
// are within [0, columns) or ignore_index.
using CrossEntropyKernel = void (*)(float* loss, float* statistics, const void* logits, const int64_t* target,
                                    const CrossEntropy& terms, int64_t rows);

// Writes the gradient of the logits from that of each row's loss, grad_loss[row * grad_stride].
using CrossEntropyBackwardKernel = void (*)(void* grad, const void* logits, const float* statistics,
                                            const float* grad_loss, int64_t grad_stride, const int64_t* target,
                                            const CrossEntropy& terms, int64_t rows);

struct CrossEntropyKernels {
  CrossEntropyKernel forward[kElements];
  CrossEntropyBackwardKernel backward[kElements];
};

CANN_DECLARE_KERNELS(CrossEntropyKernels, cross_entropy)

}  // namespace cann::kernels
