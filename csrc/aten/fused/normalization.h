#pragma once
// What layer norm and RMS norm have in common: an input as rows of the normalised dimensions, and the two passes.

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <optional>
#include <tuple>

#include "kernels/element.h"
#include "kernels/normalization.h"

namespace cann::aten {

// How an input is cut into rows; rows < 0 when it is not what the kernels take.
struct Rows {
  int64_t rows = -1;
  int64_t columns = 1;
};

// `input` must be defined; `normalized_shape` are its last dimensions, else the result says no. Takes plain tensors of
// float32 and the 16-bit types.
Rows rows_of(const at::Tensor& input, c10::SymIntArrayRef normalized_shape);

// Whether parameters, absent or of `shape`, are plain and all of the input's type, or all float32.
bool are_parameters(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                    const std::optional<at::Tensor>& bias, c10::SymIntArrayRef shape);

// ---- On raw memory, as kernels of namespace "npu" have it

// A norm of rows of one type of elements.
struct RowNorm {
  kernels::Element element;
  Rows rows;
  kernels::LayerNorm norm;
};

// Writes results and moments (means only if centered) of all rows.
void normalize_rows(const RowNorm& norm, void* y, float* mean, float* rstd, const void* x);

// How much memory normalize_rows_backward() needs for sums of parts of the rows.
int64_t floats_of_partial_sums(const Rows& rows, bool dweight, bool dbias);

// Writes the gradients that are not nullptr in `to`; unlike the kernel of that name it does not add to what is there.
void normalize_rows_backward(const RowNorm& norm, const kernels::LayerNormGradients& to, const void* dy, const void* x,
                             const float* mean, const float* rstd, float* partial_sums);

// input's sizes with ones for the last `dims`: the shape of moments.
c10::SmallVector<int64_t, 6> moments_shape(const at::Tensor& input, size_t dims);

// ---- On npu tensors

// Which of the two norms.
enum class Norm { kLayer, kRms };

// The result, and mean and rstd of the rows as float32 of the input's sizes with ones for the last `dims`. The mean of
// kRms is undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor> normalize(Norm norm, const at::Tensor& input, const Rows& rows,
                                                         size_t dims, const std::optional<at::Tensor>& weight,
                                                         const std::optional<at::Tensor>& bias, double eps);

// Gradients of input, weight and bias, each where the mask asks for it. `grad_out` is plain and of the input's type and
// sizes; mean (of kLayer) and rstd are plain, of float32 or a 16-bit type.
std::tuple<at::Tensor, at::Tensor, at::Tensor> normalize_backward(
    Norm norm, const at::Tensor& grad_out, const at::Tensor& input, const Rows& rows,
    const std::optional<at::Tensor>& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask);

}  // namespace cann::aten
