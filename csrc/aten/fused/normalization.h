#pragma once
// What layer norm and RMS norm have in common: an input as rows of the normalised dimensions.

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/SmallVector.h>

#include "kernels/normalization.h"

namespace cann::aten {

// How an input is cut into rows; rows < 0 when it is not what the kernels take.
struct Rows {
  int64_t rows = -1;
  int64_t columns = 1;
};

// `input` must be defined; `normalized_shape` are its last dimensions, else the result says no.
Rows rows_of(const at::Tensor& input, c10::SymIntArrayRef normalized_shape);

// input's sizes with ones for the last `normalized_dims`: the shape of moments.
c10::SmallVector<int64_t, 6> moments_shape(const at::Tensor& input, size_t normalized_dims);

// Gradients of the parameters, [columns] each: sums over rows. `mean` is nullptr for RMS norm; either result may be.
void sum_columns(float* dweight, float* dbias, const float* dy, const float* x, const float* mean, const float* rstd,
                 const Rows& rows);

// The gradient of a plain float32 input, of all rows. `mean` is nullptr for RMS norm.
at::Tensor input_gradient(const at::Tensor& input, const float* dy, const float* mean, const float* rstd,
                          const kernels::LayerNorm& norm, const Rows& rows);

}  // namespace cann::aten
