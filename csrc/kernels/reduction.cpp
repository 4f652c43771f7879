#include "kernels/reduction.h"

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// ---- Stores that bypass the caches: a result that nobody here reads soon should not displace what is in use, nor be
// read before it is overwritten.

#if defined(__AVX512F__)
typedef __m512i Wide;
CANN_INLINE Wide load_wide(const void* p) { return _mm512_loadu_si512(p); }
CANN_INLINE void stream_wide(void* p, Wide v) { _mm512_stream_si512((__m512i*)p, v); }
CANN_INLINE void end_of_stream() { _mm_sfence(); }
#elif defined(__AVX2__)
typedef __m256i Wide;
CANN_INLINE Wide load_wide(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
CANN_INLINE void stream_wide(void* p, Wide v) { _mm256_stream_si256((__m256i*)p, v); }
CANN_INLINE void end_of_stream() { _mm_sfence(); }
#else
struct Wide {
  uint64_t words[4];
};
CANN_INLINE Wide load_wide(const void* p) {
  Wide v;
  memcpy(&v, p, sizeof(v));
  return v;
}
CANN_INLINE void stream_wide(void* p, Wide v) { memcpy(p, &v, sizeof(v)); }
CANN_INLINE void end_of_stream() {}
#endif

CANN_INLINE bool is_aligned(const void* p) { return (uintptr_t)p % sizeof(Wide) == 0; }

void stream_copy(void* out, const void* in, size_t n) {
  char* to = static_cast<char*>(out);
  const char* from = static_cast<const char*>(in);
  size_t head = (sizeof(Wide) - (uintptr_t)to % sizeof(Wide)) % sizeof(Wide);
  if (head > n) head = n;
  memcpy(to, from, head);
  size_t i = head;
  for (; i + 4 * sizeof(Wide) <= n; i += 4 * sizeof(Wide)) {
    const Wide a = load_wide(from + i), b = load_wide(from + i + sizeof(Wide));
    const Wide c = load_wide(from + i + 2 * sizeof(Wide)), d = load_wide(from + i + 3 * sizeof(Wide));
    stream_wide(to + i, a);
    stream_wide(to + i + sizeof(Wide), b);
    stream_wide(to + i + 2 * sizeof(Wide), c);
    stream_wide(to + i + 3 * sizeof(Wide), d);
  }
  memcpy(to + i, from + i, n - i);
  end_of_stream();
}

// ---- Floats: a block is accumulated in registers, one vector per part and step

// Vectors per step: enough independent sums to hide the latency of an addition.
constexpr int kUnroll = 4;

template <Combine kOp>
CANN_INLINE Vec combine(Vec total, Vec part, Vec factor) {
  using enum Combine;
  if constexpr (kOp == kProduct) return total * part;
  if constexpr (kOp == kMin) return minimum(total, part);
  if constexpr (kOp == kMax) return maximum(total, part);
  if constexpr (kOp == kScaledSum) return total + part * factor;
  return total + part;
}

template <class T>
CANN_INLINE void write(T* out, const T* values, size_t bytes, bool stream) {
  if (!stream || !is_aligned(out) || bytes % sizeof(Wide) != 0) {
    memcpy(out, values, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += sizeof(Wide)) stream_wide((char*)out + at, load_wide((const char*)values + at));
}

template <Combine kOp>
CANN_INLINE Vec finish(Vec total, int divisor) {
  return kOp == Combine::kAverage ? total / broadcast((float)divisor) : total;
}

// Elements [i, i + kUnroll * kLanes).
template <Combine kOp, class T>
CANN_INLINE void reduce_step(const Parts& in, void* const* outs, int out_count, int64_t i, bool stream) {
  constexpr bool kScaled = kOp == Combine::kScaledSum;
  Vec total[kUnroll];
  const T* first = static_cast<const T*>(in.parts[0]) + i;
  for (int u = 0; u < kUnroll; ++u) {
    total[u] = load(first + u * kLanes);
    if constexpr (kScaled) total[u] = total[u] * broadcast((float)in.factors[0]);
  }
  for (int p = 1; p < in.count; ++p) {
    const T* part = static_cast<const T*>(in.parts[p]) + i;
    const Vec factor = kScaled ? broadcast((float)in.factors[p]) : Vec{};
    for (int u = 0; u < kUnroll; ++u) total[u] = combine<kOp>(total[u], load(part + u * kLanes), factor);
  }
  alignas(64) T result[kUnroll * kLanes];
  for (int u = 0; u < kUnroll; ++u) store(result + u * kLanes, finish<kOp>(total[u], in.divisor));
  for (int k = 0; k < out_count; ++k) write(static_cast<T*>(outs[k]) + i, result, sizeof(result), stream);
}

// Elements [i, i + n), 0 < n <= kLanes; a whole vector is computed, of which `n` are kept.
template <Combine kOp, class T>
CANN_INLINE void reduce_tail(const Parts& in, void* const* outs, int out_count, int64_t i, int64_t n) {
  constexpr bool kScaled = kOp == Combine::kScaledSum;
  const auto read = [&](int p) {
    const T* part = static_cast<const T*>(in.parts[p]) + i;
    return n < kLanes ? load_some(part, n) : load(part);
  };
  Vec total = read(0);
  if constexpr (kScaled) total = total * broadcast((float)in.factors[0]);
  for (int p = 1; p < in.count; ++p) {
    total = combine<kOp>(total, read(p), kScaled ? broadcast((float)in.factors[p]) : Vec{});
  }
  T result[kLanes];
  store(result, finish<kOp>(total, in.divisor));
  for (int k = 0; k < out_count; ++k) memcpy(static_cast<T*>(outs[k]) + i, result, n * sizeof(T));
}

template <Combine kOp, class T>
void reduce_floats(const Parts& in, void* const* outs, int out_count, int64_t n, bool stream) {
  int64_t i = 0;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) reduce_step<kOp, T>(in, outs, out_count, i, stream);
  for (; i < n; i += kLanes) reduce_tail<kOp, T>(in, outs, out_count, i, n - i < kLanes ? n - i : kLanes);
  if (stream) end_of_stream();
}

// ---- Integers and float64: a block is accumulated in the first-level cache, which the compiler vectorises

constexpr int64_t kBlock = 1024;

// What sums and products are computed in: integers wrap, which signed arithmetic may not.
template <class T>
struct Arithmetic;
template <>
struct Arithmetic<int8_t> {
  typedef uint8_t type;
};
template <>
struct Arithmetic<uint8_t> {
  typedef uint8_t type;
};
template <>
struct Arithmetic<int16_t> {
  typedef uint16_t type;
};
template <>
struct Arithmetic<int32_t> {
  typedef uint32_t type;
};
template <>
struct Arithmetic<int64_t> {
  typedef uint64_t type;
};
template <>
struct Arithmetic<uint64_t> {
  typedef uint64_t type;
};
template <>
struct Arithmetic<double> {
  typedef double type;
};

template <class T>
constexpr bool kIsFloating = false;
template <>
constexpr bool kIsFloating<double> = true;

template <Combine kOp, class T>
CANN_INLINE T combine_scalars(T total, T part, double factor) {
  using enum Combine;
  typedef typename Arithmetic<T>::type A;
  if constexpr (kOp == kScaledSum) return (T)(total + part * factor);
  // Narrow operands are promoted to int, where a product of two uint16_t overflows.
  if constexpr (kOp == kProduct && kIsFloating<T>) return total * part;
  if constexpr (kOp == kProduct && !kIsFloating<T>) return (T)((uint64_t)(A)total * (uint64_t)(A)part);
  // A total that is NaN stays: x != x.
  if constexpr (kOp == kMin) return part < total || part != part ? part : total;
  if constexpr (kOp == kMax) return part > total || part != part ? part : total;
  return (T)(A)((A)total + (A)part);
}

template <Combine kOp, class T>
void reduce_scalars(const Parts& in, void* const* outs, int out_count, int64_t n, bool stream) {
  constexpr bool kScaled = kOp == Combine::kScaledSum;
  alignas(64) T total[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t length = n - begin < kBlock ? n - begin : kBlock;
    memcpy(total, static_cast<const T*>(in.parts[0]) + begin, length * sizeof(T));
    if constexpr (kScaled) {
      for (int64_t i = 0; i < length; ++i) total[i] = (T)(total[i] * in.factors[0]);
    }
    for (int p = 1; p < in.count; ++p) {
      const T* part = static_cast<const T*>(in.parts[p]) + begin;
      const double factor = kScaled ? in.factors[p] : 1.0;
      for (int64_t i = 0; i < length; ++i) total[i] = combine_scalars<kOp>(total[i], part[i], factor);
    }
    if constexpr (kOp == Combine::kAverage) {
      const T divisor = (T)in.divisor;
      for (int64_t i = 0; i < length; ++i) total[i] = (T)(total[i] / divisor);
    }
    for (int k = 0; k < out_count; ++k) {
      write(static_cast<T*>(outs[k]) + begin, total, length * sizeof(T), stream);
    }
  }
  if (stream) end_of_stream();
}

// ---- Tables: a row per reduction

template <int... kOps>
struct OpList {};

template <int... kOps>
constexpr ReductionKernels make_kernels(OpList<kOps...>) {
  return {
      {{&reduce_floats<static_cast<Combine>(kOps), float>, &reduce_floats<static_cast<Combine>(kOps), Half>,
        &reduce_floats<static_cast<Combine>(kOps), BFloat16>, &reduce_scalars<static_cast<Combine>(kOps), int8_t>,
        &reduce_scalars<static_cast<Combine>(kOps), uint8_t>, &reduce_scalars<static_cast<Combine>(kOps), int16_t>,
        &reduce_scalars<static_cast<Combine>(kOps), int32_t>, &reduce_scalars<static_cast<Combine>(kOps), int64_t>,
        &reduce_scalars<static_cast<Combine>(kOps), uint64_t>, &reduce_scalars<static_cast<Combine>(kOps), double>}...,
       {&reduce_floats<Combine::kScaledSum, float>, &reduce_floats<Combine::kScaledSum, Half>,
        &reduce_floats<Combine::kScaledSum, BFloat16>, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
        &reduce_scalars<Combine::kScaledSum, double>}},
      &stream_copy};
}

}  // namespace

extern const ReductionKernels reduction = make_kernels(OpList<0, 1, 2, 3, 4>{});

}  // namespace cann::kernels::CANN_KERNEL_SET
