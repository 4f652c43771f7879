#pragma once
// The vector of floats that kernels compute in: as wide as the instruction set this file is compiled for.
//
// Everything is in the instruction set's own namespace and inlined, so that no function compiled with wide instructions
// can be merged with a namesake of another set. For the same reason kernels call no templates of the standard library.

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/element.h"

#define CANN_INLINE static inline __attribute__((always_inline))
#define CANN_INLINE_MEMBER inline __attribute__((always_inline))

namespace cann::kernels::CANN_KERNEL_SET {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));

CANN_INLINE Vec broadcast(float value) { return value - Vec{}; }
CANN_INLINE IntVec broadcast_int(int32_t value) { return value - IntVec{}; }
CANN_INLINE IntVec bits_of(Vec v) { return (IntVec)v; }
CANN_INLINE Vec from_bits(IntVec v) { return (Vec)v; }

// Lane by lane where `mask` (all bits or none) is set `a`, else `b`.
CANN_INLINE Vec select(IntVec mask, Vec a, Vec b) { return mask ? a : b; }

// ---- Operations without an operator in the vector extension

#if defined(__AVX512F__)
CANN_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
CANN_INLINE Vec sqrt(Vec v) { return _mm512_sqrt_ps(v); }
CANN_INLINE IntVec round_to_int(Vec v) { return (IntVec)_mm512_cvtps_epi32(v); }
CANN_INLINE Vec to_float(IntVec v) { return _mm512_cvtepi32_ps((__m512i)v); }
#elif defined(__AVX2__)
CANN_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
CANN_INLINE Vec sqrt(Vec v) { return _mm256_sqrt_ps(v); }
CANN_INLINE IntVec round_to_int(Vec v) { return (IntVec)_mm256_cvtps_epi32(v); }
CANN_INLINE Vec to_float(IntVec v) { return _mm256_cvtepi32_ps((__m256i)v); }
#else
CANN_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }  // two roundings: there is no such instruction
CANN_INLINE Vec sqrt(Vec v) {
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
}
CANN_INLINE IntVec round_to_int(Vec v) {
  // Adding 1.5 * 2^23 leaves the integer, rounded to nearest even, in the low bits; for |v| < 2^22.
  const Vec magic = broadcast(12582912.0f);
  return bits_of(v + magic) - bits_of(magic);
}
CANN_INLINE Vec to_float(IntVec v) {
  Vec result;
  for (int i = 0; i < kLanes; ++i) result[i] = (float)v[i];
  return result;
}
#endif

CANN_INLINE Vec abs(Vec v) { return from_bits(bits_of(v) & broadcast_int(0x7fffffff)); }
// NaN in either operand gives NaN, as torch.maximum does.
CANN_INLINE Vec maximum(Vec a, Vec b) { return select((IntVec)(a > b) | (IntVec)(a != a), a, b); }
CANN_INLINE Vec minimum(Vec a, Vec b) { return select((IntVec)(a < b) | (IntVec)(a != a), a, b); }

// The larger and the smaller lanes; `b` where either is NaN.
#if defined(__AVX512F__)
// With a mask of all lanes: GCC 12 warns of the value that the forms without one leave undefined.
CANN_INLINE Vec larger(Vec a, Vec b) { return _mm512_maskz_max_ps(0xffff, a, b); }
CANN_INLINE Vec smaller(Vec a, Vec b) { return _mm512_maskz_min_ps(0xffff, a, b); }
#elif defined(__AVX2__)
CANN_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
CANN_INLINE Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
#else
CANN_INLINE Vec larger(Vec a, Vec b) { return select((IntVec)(a > b), a, b); }
CANN_INLINE Vec smaller(Vec a, Vec b) { return select((IntVec)(a < b), a, b); }
#endif

// ---- Sums over lanes, in a fixed order: halves are added until one lane is left

template <int kDistance>
CANN_INLINE Vec lanes_from_afar(Vec v) {  // lane i gets what lane i ^ kDistance has
  IntVec from;
  for (int i = 0; i < kLanes; ++i) from[i] = i ^ kDistance;
  return __builtin_shuffle(v, from);
}

template <int kDistance>
CANN_INLINE Vec combined_lanes(Vec v, auto combine) {
  v = combine(v, lanes_from_afar<kDistance>(v));
  if constexpr (kDistance > 1) return combined_lanes<kDistance / 2>(v, combine);
  return v;
}

CANN_INLINE float sum_lanes(Vec v) {
  return combined_lanes<kLanes / 2>(
      v, [](Vec a, Vec b) __attribute__((always_inline)) { return a + b; })[0];
}

CANN_INLINE float max_lanes(Vec v) {
  return combined_lanes<kLanes / 2>(
      v, [](Vec a, Vec b) __attribute__((always_inline)) { return maximum(a, b); })[0];
}

// The first 0 < n < kLanes lanes of v, `other` in the rest.
CANN_INLINE Vec first_lanes(Vec v, int64_t n, Vec other) {
  IntVec lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return select((IntVec)(lane < (int32_t)n), v, other);
}

// ---- Memory. load() and store() move kLanes elements; load_some() and store_some() the first 0 < n < kLanes, the rest
// reading as zero.

CANN_INLINE Vec load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof(v));
  return v;
}
CANN_INLINE void store(float* p, Vec v) { memcpy(p, &v, sizeof(v)); }

// store() past the caches, to a `p` aligned to the elements' vector: without it a line is read before it is
// overwritten. finish_streaming() makes such stores visible to other threads.
#if defined(__AVX512F__)
CANN_INLINE void stream(float* p, Vec v) { _mm512_stream_ps(p, v); }
#elif defined(__AVX2__)
CANN_INLINE void stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
#else
CANN_INLINE void stream(float* p, Vec v) { store(p, v); }
#endif
CANN_INLINE void finish_streaming() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

#if defined(__AVX512F__)
CANN_INLINE Vec load(const BFloat16* p) {
  const __m256i half = _mm256_loadu_si256((const __m256i*)p);
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}
// The upper half of each lane is it as bfloat16, to nearest even.
CANN_INLINE __m512i rounded_to_upper_half(Vec v) {
  // Half a unit less one is added, and one more where the last bit that stays is odd.
  const __m512i bits = (__m512i)v, nearly_half = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i rounded = _mm512_mask_add_epi32(nearly_half, odd, nearly_half, _mm512_set1_epi32(1));
  return _mm512_mask_set1_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), 0x7fc00000);
}
CANN_INLINE void store(BFloat16* p, Vec v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_to_upper_half(v), 16)));
}
CANN_INLINE Vec load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
CANN_INLINE void store(Half* p, Vec v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
CANN_INLINE Vec load(const BFloat16* p) {
  const __m128i half = _mm_loadu_si128((const __m128i*)p);
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}
// The upper half of each lane is it as bfloat16, to nearest even.
CANN_INLINE __m256i rounded_to_upper_half(Vec v) {
  const __m256i bits = (__m256i)v;
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
  const __m256i nan = (__m256i)_mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan);
}
CANN_INLINE void store(BFloat16* p, Vec v) {
  const __m256i rounded = _mm256_srli_epi32(rounded_to_upper_half(v), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}
CANN_INLINE Vec load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
CANN_INLINE void store(Half* p, Vec v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
CANN_INLINE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
CANN_INLINE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
CANN_INLINE Vec load(const BFloat16* p) {
  Vec v;
  for (int i = 0; i < kLanes; ++i) v[i] = float_of((uint32_t)p[i].bits << 16);
  return v;
}
CANN_INLINE void store(BFloat16* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = bits_of(v[i]);
    p[i].bits = v[i] != v[i] ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}
CANN_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);  // infinity or NaN
  // Below the exponent's offset of 112 lie the subnormal halves: scaling by 2^112 in float puts both right.
  return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
}
CANN_INLINE uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // rounds to infinity
  // Subnormal: adding 0.5 aligns the lowest bit of a half with the lowest bit of the float, which rounds to even.
  if (magnitude < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
  return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
CANN_INLINE Vec load(const Half* p) {
  Vec v;
  for (int i = 0; i < kLanes; ++i) v[i] = half_to_float(p[i].bits);
  return v;
}
CANN_INLINE void store(Half* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i].bits = float_to_half(v[i]);
}
#endif

// stream() of 16-bit elements.
template <class T>
CANN_INLINE void stream(T* p, Vec v) {
#if defined(__AVX512F__)
  T full[kLanes];
  store(full, v);
  _mm256_stream_si256((__m256i*)p, _mm256_loadu_si256((const __m256i*)full));
#elif defined(__AVX2__)
  T full[kLanes];
  store(full, v);
  _mm_stream_si128((__m128i*)p, _mm_loadu_si128((const __m128i*)full));
#else
  store(p, v);
#endif
}

// Two vectors at once, of 2 kLanes elements in whatever order is cheapest: load_first() and load_second() have one half
// of the elements each, and store_both() puts them back where they came from.
CANN_INLINE Vec load_first(const auto* p) { return load(p); }
CANN_INLINE Vec load_second(const auto* p) { return load(p + kLanes); }
CANN_INLINE void store_both(auto* p, Vec first, Vec second) {
  store(p, first);
  store(p + kLanes, second);
}
// Every other bfloat16 is the upper half of a float already: widening and narrowing need no shuffles.
#if defined(__AVX512F__)
CANN_INLINE Vec load_first(const BFloat16* p) { return (Vec)_mm512_slli_epi32(_mm512_loadu_si512(p), 16); }
CANN_INLINE Vec load_second(const BFloat16* p) {
  return (Vec)_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000));
}
CANN_INLINE void store_both(BFloat16* p, Vec first, Vec second) {
  const __m512i low = _mm512_srli_epi32(rounded_to_upper_half(first), 16);
  _mm512_storeu_si512(p, _mm512_mask_blend_epi16(0xaaaaaaaa, low, rounded_to_upper_half(second)));
}
#elif defined(__AVX2__)
CANN_INLINE Vec load_first(const BFloat16* p) {
  return (Vec)_mm256_slli_epi32(_mm256_loadu_si256((const __m256i*)p), 16);
}
CANN_INLINE Vec load_second(const BFloat16* p) {
  return (Vec)_mm256_and_si256(_mm256_loadu_si256((const __m256i*)p), _mm256_set1_epi32((int)0xffff0000));
}
CANN_INLINE void store_both(BFloat16* p, Vec first, Vec second) {
  const __m256i low = _mm256_srli_epi32(rounded_to_upper_half(first), 16);
  _mm256_storeu_si256((__m256i*)p, _mm256_blend_epi16(low, rounded_to_upper_half(second), 0xaa));
}
#endif
// store_both() past the caches, to a `p` aligned to a Vec.
CANN_INLINE void stream_both(float* p, Vec first, Vec second) {
  stream(p, first);
  stream(p + kLanes, second);
}
CANN_INLINE void stream_both(auto* p, Vec first, Vec second) {
#if defined(__AVX2__)
  uint16_t full[2 * kLanes];
  store_both((decltype(p))full, first, second);
  Vec bits;
  memcpy(&bits, full, sizeof(bits));
  stream((float*)p, bits);
#else
  store_both(p, first, second);
#endif
}

#if defined(__AVX512F__)
CANN_INLINE uint16_t first_bits(int64_t n) { return (uint16_t)((1u << n) - 1); }
#endif

template <class T>
CANN_INLINE Vec load_some(const T* p, int64_t n) {
  T full[kLanes] = {};
#if defined(__AVX512F__)
  static_assert(sizeof(T) == 2);
  _mm256_storeu_si256((__m256i*)full, _mm256_maskz_loadu_epi16(first_bits(n), p));
#else
  memcpy(full, p, n * sizeof(T));
#endif
  return load(full);
}

template <class T>
CANN_INLINE void store_some(T* p, Vec v, int64_t n) {
  T full[kLanes];
  store(full, v);
#if defined(__AVX512F__)
  static_assert(sizeof(T) == 2);
  _mm256_mask_storeu_epi16(p, first_bits(n), _mm256_loadu_si256((const __m256i*)full));
#else
  memcpy(p, full, n * sizeof(T));
#endif
}

#if defined(__AVX512F__)
template <>
inline __attribute__((always_inline)) Vec load_some(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first_bits(n), p);
}
template <>
inline __attribute__((always_inline)) void store_some(float* p, Vec v, int64_t n) {
  _mm512_mask_storeu_ps(p, first_bits(n), v);
}
#endif

// One element as a number, and a number as one element.
CANN_INLINE float scalar_of(float value) { return value; }
CANN_INLINE float scalar_of(auto value) { return load_some(&value, 1)[0]; }
template <class T>
CANN_INLINE T scalar_as(float value) {
  T result;
  store_some(&result, broadcast(value), 1);
  return result;
}

}  // namespace cann::kernels::CANN_KERNEL_SET
