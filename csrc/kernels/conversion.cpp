#include "kernels/conversion.h"

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

float max_abs(const float* in, int64_t n) {
  Vec largest = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = maximum(largest, abs(load(in + i)));
  if (i < n) largest = maximum(largest, abs(load_some(in + i, n - i)));
  return max_lanes(largest);
}

template <class To, class From>
void convert(const From* in, To* out, int64_t n, float scale) {
  const Vec factor = broadcast(scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(in + i) * factor);
  if (i < n) store_some(out + i, load_some(in + i, n - i) * factor, n - i);
}

void to_int8(const float* in, int8_t* out, int64_t n, float scale) {
  const Vec factor = broadcast(scale);
  int64_t i = 0;
  for (; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    const IntVec whole = round_to_int((count < kLanes ? load_some(in + i, count) : load(in + i)) * factor);
    for (int64_t lane = 0; lane < count; ++lane) out[i + lane] = (int8_t)whole[lane];
  }
}

void from_int8(const int8_t* in, float* out, int64_t n, float scale) {
  for (int64_t i = 0; i < n; ++i) out[i] = (float)in[i] * scale;
}

}  // namespace

extern const ConversionKernels conversion = {
    &max_abs,
    &convert<Half, float>,
    &convert<float, Half>,
    &convert<BFloat16, float>,
    &convert<float, BFloat16>,
    &to_int8,
    &from_int8,
};

}  // namespace cann::kernels::CANN_KERNEL_SET
