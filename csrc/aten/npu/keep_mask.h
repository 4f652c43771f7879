#pragma once
// Dropout masks as a pure function of (seed, offset, element): any part of a mask can be made on its own, so attention
// never holds a whole one, and backward makes the same mask again from the two numbers the forward returned.
//
// A packed mask is uint8, one bit for each element, the lowest bit first, 1 for "keep"; its length is that of the
// hardware: the number of elements rounded up to 128, divided by 8.

#include <ATen/core/Tensor.h>

#include "aten/npu/support.h"
#include "runtime/device.h"

namespace cann::aten::npu {

struct DropoutKey {
  int64_t seed = 0;
  int64_t offset = 0;
};

// Takes (seed, offset) from the default generator of the card and advances it.
DropoutKey take_dropout_key(c10::DeviceIndex device);

// keep[i] for elements begin, begin + 1, ... of the mask of `key`. Runs on the calling thread.
void fill_keep(bool* keep, int64_t begin, int64_t count, DropoutKey key, double keep_probability);

// Bytes of a packed mask.
template <class Int>
Int packed_mask_bytes(const Int& elements) {
  return (elements + 127) / 128 * 16;
}

// A packed mask of `elements` bits. For the CPU (memory from the current allocation redirect).
Tensor make_packed_mask(int64_t elements, DropoutKey key, double keep_probability);
// The bits begin, ..., begin + count of a packed mask as bool. Raises when it is too short.
void unpack_keep(bool* keep, const Tensor& packed, int64_t begin, int64_t count);
// The whole packed mask as a bool tensor of `sizes`.
Tensor unpack_mask(const Tensor& packed, IntArrayRef sizes, const char* op);

}  // namespace cann::aten::npu
