#pragma once
// Walking a row in vectors: sums of it, and writing another. Bodies are given functions that read and write, in any
// element type, at the present position, so that one body serves whole vectors and the shorter rest.

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {

inline constexpr int kSums = 4;  // independent vectors of a sum, so that one addition need not wait for the last

// What a body reads and writes with at position i: whole vectors, or the first `rest` elements.
CANN_INLINE auto reader(int64_t i) {
  return [=](const auto* p) __attribute__((always_inline)) { return load(p + i); };
}
CANN_INLINE auto writer(int64_t i) {
  return [=](auto* p, Vec v) __attribute__((always_inline)) { store(p + i, v); };
}
CANN_INLINE auto reader(int64_t i, int64_t rest) {
  return [=](const auto* p) __attribute__((always_inline)) { return load_some(p + i, rest); };
}
CANN_INLINE auto writer(int64_t i, int64_t rest) {
  return [=](auto* p, Vec v) __attribute__((always_inline)) { store_some(p + i, v, rest); };
}

// For each of some rows r, the sum over i < n of what term(read, write, r) returns, in an order that does not depend on
// kRows. Lanes past the end are left out. Several rows at once hide the latency of a row's last additions.
template <int kRows, class Term>
CANN_INLINE void sums_writing(int64_t n, double (&sums)[kRows], Term term) {
  Vec part[kRows][kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int r = 0; r < kRows; ++r) {
      for (int k = 0; k < kSums; ++k) part[r][k] += term(reader(i + k * kLanes), writer(i + k * kLanes), r);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    for (int r = 0; r < kRows; ++r) part[r][0] += term(reader(i), writer(i), r);
  }
  if (const int64_t rest = n - i; rest > 0) {
    for (int r = 0; r < kRows; ++r) {
      part[r][1] += first_lanes(term(reader(i, rest), writer(i, rest), r), rest, Vec{});
    }
  }
  for (int r = 0; r < kRows; ++r) {
    sums[r] = (double)sum_lanes((part[r][0] + part[r][1]) + (part[r][2] + part[r][3]));
  }
}

// Of one row: the sum of term(read, write).
template <class Term>
CANN_INLINE double sum_writing(int64_t n, Term term) {
  double sum[1];
  sums_writing<1>(
      n, sum, [=](auto read, auto write, int) __attribute__((always_inline)) { return term(read, write); });
  return sum[0];
}

// The same of a term(read) that writes nothing.
template <class Term>
CANN_INLINE double sum_over(int64_t n, Term term) {
  return sum_writing(
      n, [=](auto read, auto) __attribute__((always_inline)) { return term(read); });
}

// For every position: body(read, write) with whole vectors, then with the rest.
template <class Body>
CANN_INLINE void for_each_vector(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(reader(i), writer(i));
  if (const int64_t rest = n - i; rest > 0) body(reader(i, rest), writer(i, rest));
}

// for_each_vector() of a body that writes to `out` alone, past the caches if asked for and out's alignment allows it.
template <class T, class Body>
CANN_INLINE void write_row(T* out, int64_t n, bool past_caches, Body body) {
  if (!past_caches || (uintptr_t)out % (kLanes * sizeof(T)) != 0) {
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) { write(out, body(read)); });
    return;
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) stream(out + i, body(reader(i)));
  if (const int64_t rest = n - i; rest > 0) writer(i, rest)(out, body(reader(i, rest)));
}

// write_row() of a body that reads elements of out's type alone, two vectors at a time. `out` may be what is read,
// unless past_caches.
template <class T, class Body>
CANN_INLINE void write_alike(T* out, int64_t n, bool past_caches, Body body) {
  const bool streams = past_caches && (uintptr_t)out % sizeof(Vec) == 0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec first = body([=](const T* p) __attribute__((always_inline)) { return load_first(p + i); });
    const Vec second = body([=](const T* p) __attribute__((always_inline)) { return load_second(p + i); });
    streams ? stream_both(out + i, first, second) : store_both(out + i, first, second);
  }
  for (; i + kLanes <= n; i += kLanes) store(out + i, body(reader(i)));
  if (const int64_t rest = n - i; rest > 0) store_some(out + i, body(reader(i, rest)), rest);
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
  if (const int64_t rest = n - i; rest > 0) {
    part[1] = larger(first_lanes(load_some(x + i, rest), rest, lowest), part[1]);
  }
  return max_lanes(larger(larger(part[0], part[1]), larger(part[2], part[3])));
}

}  // namespace cann::kernels::CANN_KERNEL_SET
