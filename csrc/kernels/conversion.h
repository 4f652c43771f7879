#pragma once
// Floats in fewer bits, for the wire: 16-bit types, and whole numbers of 8 bits with a common scale.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

// Ranges must not overlap. Rounding is to the nearest, ties to even.
struct ConversionKernels {
  // The largest |in[i]|, 0 for n = 0; NaN if any is.
  float (*max_abs)(const float* in, int64_t n);
  // out[i] = in[i] * scale.
  void (*to_half)(const float* in, Half* out, int64_t n, float scale);
  void (*from_half)(const Half* in, float* out, int64_t n, float scale);
  void (*to_bfloat16)(const float* in, BFloat16* out, int64_t n, float scale);
  void (*from_bfloat16)(const BFloat16* in, float* out, int64_t n, float scale);
  // |in[i] * scale| must be below 127.5 and no NaN.
  void (*to_int8)(const float* in, int8_t* out, int64_t n, float scale);
  void (*from_int8)(const int8_t* in, float* out, int64_t n, float scale);
};

CANN_DECLARE_KERNELS(ConversionKernels, conversion)

}  // namespace cann::kernels
