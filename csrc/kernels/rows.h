#pragma once
// Walking a row in vectors: sums of it, and writing another. Bodies are given functions that read and write, in any
// element type, at the present position, so that one body serves whole vectors and the shorter rest.

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {

inline constexpr int kSums = 4;  // independent vectors of a sum, so that one addition need not wait for the last

// Sum over i < n of term(load of the elements from i on); term gets a function that reads a pointer at the position.
// Lanes past the end are left out.
template <class Term>
CANN_INLINE double sum_over(int64_t n, Term term) {
  Vec part[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int k = 0; k < kSums; ++k) {
      part[k] += term([=](const auto* p) __attribute__((always_inline)) { return load(p + i + k * kLanes); });
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    part[0] += term([=](const auto* p) __attribute__((always_inline)) { return load(p + i); });
  }
  double sum = (double)sum_lanes((part[0] + part[1]) + (part[2] + part[3]));
  if (i < n) {
    const Vec last = term([=](const auto* p) __attribute__((always_inline)) { return load_some(p + i, n - i); });
    for (int64_t lane = 0; lane < n - i; ++lane) sum += (double)last[lane];
  }
  return sum;
}

// For every position: write(position, read, n) with whole vectors, then with the rest.
template <class Body>
CANN_INLINE void for_each_vector(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    body(
        [=](const auto* p) __attribute__((always_inline)) { return load(p + i); }, [=
    ](auto* p, Vec v) __attribute__((always_inline)) { store(p + i, v); });
  }
  if (const int64_t rest = n - i; rest > 0) {
    body(
        [=](const auto* p) __attribute__((always_inline)) { return load_some(p + i, rest); }, [=
    ](auto* p, Vec v) __attribute__((always_inline)) { store_some(p + i, v, rest); });
  }
}

// The largest of n >= 1 elements that are no NaN, -infinity if all are. For the exponent of a softmax: NaN comes back
// in when it is subtracted.
template <class T>
CANN_INLINE float max_of_exponents(const T* x, int64_t n) {
  const Vec lowest = broadcast(-__builtin_inff());
  Vec part[kSums] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int k = 0; k < kSums; ++k) part[k] = larger(load(x + i + k * kLanes), part[k]);
  }
  for (; i + kLanes <= n; i += kLanes) part[0] = larger(load(x + i), part[0]);
  float max = max_lanes(larger(larger(part[0], part[1]), larger(part[2], part[3])));
  if (i < n) {
    const Vec last = load_some(x + i, n - i);
    for (int64_t lane = 0; lane < n - i; ++lane) max = last[lane] > max ? last[lane] : max;
  }
  return max;
}

}  // namespace cann::kernels::CANN_KERNEL_SET
