#include "kernels/dropout.h"

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

static_assert(sizeof(bool) == 1);

typedef uint32_t UintVec __attribute__((vector_size(4 * kLanes)));
typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));

constexpr int64_t kBlock = 4096;

// A bijection of 32 bits in which each bit of the input changes each of the output with a probability near one half:
// "lowbias32" of C. Wellons' search for such functions (nullprogram.com, 2018).
CANN_INLINE UintVec mix(UintVec h) {
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ h >> 16;
}

// The random bits of kLanes elements: two rounds with half of the key each.
CANN_INLINE UintVec random_bits(UintVec position, uint64_t key) {
  return mix(mix(position + (uint32_t)key) ^ (uint32_t)(key >> 32));
}

CANN_INLINE UintVec positions_from(uint32_t first) {
  UintVec result;
  for (int i = 0; i < kLanes; ++i) result[i] = first + (uint32_t)i;
  return result;
}

template <class T>
void dropout_range(void* y_, bool* mask, const void* x_, const Dropout& dropout, uint64_t first, int64_t n) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  const Vec scale = broadcast(dropout.scale);
  const uint32_t keep = dropout.keep;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    // A position has 32 bits; what is above them goes into the key.
    const uint64_t position = first + (uint64_t)begin;
    const uint64_t key = dropout.key + (position >> 32) * 0x9e3779b97f4a7c15ull;
    UintVec lanes = positions_from((uint32_t)position);
    for (int64_t i = begin; i < end; i += kLanes, lanes += (uint32_t)kLanes) {
      const IntVec kept = (IntVec)(random_bits(lanes, key) < keep);
      const Vec factor = select(kept, scale, Vec{});
      const ByteVec bytes = __builtin_convertvector((UintVec)kept & 1u, ByteVec);
      if (const int64_t count = end - i; count >= kLanes) {
        store(y + i, load(x + i) * factor);
        memcpy(mask + i, &bytes, kLanes);
      } else {
        store_some(y + i, load_some(x + i, count) * factor, count);
        memcpy(mask + i, &bytes, (size_t)count);
      }
    }
  }
}

template <class T>
void dropout_backward_range(void* dx_, const void* dy_, const bool* mask, float scale, int64_t n) {
  T* dx = static_cast<T*>(dx_);
  const T* dy = static_cast<const T*>(dy_);
  const Vec factor = broadcast(scale);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    ByteVec bytes = {};
    memcpy(&bytes, mask + i, (size_t)count);
    const Vec kept = to_float((IntVec) __builtin_convertvector(bytes, UintVec)) * factor;
    if (count == kLanes) {
      store(dx + i, load(dy + i) * kept);
    } else {
      store_some(dx + i, load_some(dy + i, count) * kept, count);
    }
  }
}

}  // namespace

extern const DropoutKernels dropout = {
    .forward = {&dropout_range<float>, &dropout_range<BFloat16>, &dropout_range<Half>},
    .backward = {&dropout_backward_range<float>, &dropout_backward_range<BFloat16>, &dropout_backward_range<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
