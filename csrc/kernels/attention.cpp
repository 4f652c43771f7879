#include "kernels/attention.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr float kLowest = -3.402823466e+38f;

// ---- Layouts

template <class T>
void pack_rows(float* to, const void* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded,
               float scale) {
  const T* source = static_cast<const T*>(from);
  const Vec factor = broadcast(scale);
  for (int64_t row = 0; row < rows; ++row, source += stride, to += padded) {
    for_each_vector(
        columns, [=](auto read, auto write) __attribute__((always_inline)) { write(to, read(source) * factor); });
    for (int64_t c = columns; c < padded; ++c) to[c] = 0.0f;
  }
}

template <class T>
void transpose_rows(float* to, const void* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded) {
  const T* source = static_cast<const T*>(from);
  for (int64_t first = 0; first < rows; first += kBlock, source += kBlock * stride, to += kBlock * padded) {
    const int64_t count = rows - first < kBlock ? rows - first : kBlock;
    memset(to, 0, kBlock * padded * sizeof(float));
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < columns; c += kLanes) {
        const int64_t n = columns - c < kLanes ? columns - c : kLanes;
        const T* elements = source + r * stride + c;
        float numbers[kLanes];
        store(numbers, n == kLanes ? load(elements) : load_some(elements, n));
        for (int64_t lane = 0; lane < n; ++lane) to[(c + lane) * kBlock + r] = numbers[lane];
      }
    }
  }
}

template <class T>
void unpack_rows(void* to, int64_t stride, const float* from, int64_t rows, int64_t columns, int64_t padded,
                 const float* scale, int64_t scale_step) {
  T* target = static_cast<T*>(to);
  for (int64_t row = 0; row < rows; ++row, target += stride, from += padded) {
    const Vec factor = broadcast(scale[row * scale_step]);
    for_each_vector(
        columns, [=](auto read, auto write) __attribute__((always_inline)) { write(target, read(from) * factor); });
  }
}

// ---- Products: c[m, n] (+)= a b with b's rows adjacent in vectors; a is read element by element, so that any two
// strides will do and a transposed factor costs nothing.

constexpr int kTileRows = kAttentionSpareRows + 1;
#if defined(__AVX512F__)
constexpr int kTileVecs = 4;  // 16 sums of 32 registers
#else
constexpr int kTileVecs = 2;  // 8 sums of 16 registers
#endif

struct Factor {
  const float* data;
  int64_t row, step;  // strides of an element's row and of the dimension that is summed over
};

template <int kVecs>
CANN_INLINE void tile(float* c, int64_t c_row, const Factor& a, const float* b, int64_t b_row, int64_t depth,
                      bool accumulate) {
  Vec sums[kTileRows][kVecs] = {};
  const float* left = a.data;
  for (int64_t k = 0; k < depth; ++k, left += a.step, b += b_row) {
    Vec right[kVecs];
    for (int v = 0; v < kVecs; ++v) right[v] = load(b + v * kLanes);
    for (int r = 0; r < kTileRows; ++r) {
      const Vec x = broadcast(left[r * a.row]);
      for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(x, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      float* to = c + r * c_row + v * kLanes;
      store(to, accumulate ? load(to) + sums[r][v] : sums[r][v]);
    }
  }
}

template <int kVecs>
CANN_INLINE void panel(float* c, int64_t c_row, int64_t rows, const Factor& a, const float* b, int64_t b_row,
                       int64_t depth, bool accumulate) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    tile<kVecs>(c + r * c_row, c_row, {a.data + r * a.row, a.row, a.step}, b, b_row, depth, accumulate);
  }
}

// `columns` is a multiple of kAttentionColumns; up to kAttentionSpareRows more rows are written.
void multiply(float* c, int64_t c_row, int64_t rows, int64_t columns, Factor a, const float* b, int64_t b_row,
              int64_t depth, bool accumulate) {
  int64_t n = 0;
  for (; n + kTileVecs * kLanes <= columns; n += kTileVecs * kLanes) {
    panel<kTileVecs>(c + n, c_row, rows, a, b + n, b_row, depth, accumulate);
  }
  if constexpr (kTileVecs > 2) {
    for (; n + 2 * kLanes <= columns; n += 2 * kLanes) {
      panel<2>(c + n, c_row, rows, a, b + n, b_row, depth, accumulate);
    }
  }
  for (; n < columns; n += kLanes) panel<1>(c + n, c_row, rows, a, b + n, b_row, depth, accumulate);
}

// ---- Scores of a block

struct Span {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};

CANN_INLINE Span clamped(int64_t begin, int64_t end, int64_t low, int64_t high) {
  return {begin > low ? begin : low, end < high ? end : high};
}

// The keys of [key, key + count) that a query sees, counted from `key`.
CANN_INLINE Span seen(const AttentionView& view, int64_t query, int64_t key, int64_t count) {
  return clamped(query - view.before - key, query + view.after + 1 - key, 0, count);
}

// The keys that any of the queries [first, last] sees.
CANN_INLINE Span seen_by(const AttentionView& view, int64_t first, int64_t last) {
  return clamped(first - view.before, last + view.after + 1, 0, view.keys);
}

// Adds the bias to a row of scores, and -infinity where the query may not look.
CANN_INLINE void apply_view(float* scores, const AttentionView& view, int64_t query, int64_t key, int64_t count) {
  const Span span = seen(view, query, key, count);
  if (view.bias != nullptr) {
    const float* bias = view.bias + query * view.bias_row + key;
    const Vec factor = broadcast(view.bias_scale);
    for_each_vector(
        count, [=](auto read, auto write)
                   __attribute__((always_inline)) { write(scores, fma(read(bias), factor, read(scores))); });
  }
  if (view.masked != nullptr) {
    const bool* masked = view.masked + query * view.masked_row + key;
    for (int64_t j = 0; j < count; ++j) scores[j] = masked[j] ? -__builtin_inff() : scores[j];
  }
  const int64_t begin = span.begin < kBlock ? span.begin : kBlock, end = span.end > 0 ? span.end : 0;
  for (int64_t j = 0; j < begin; ++j) scores[j] = -__builtin_inff();
  for (int64_t j = end; j < kBlock; ++j) scores[j] = -__builtin_inff();
}

// ---- Forward

// Turns a row of scores into e^(score - maximum) with the maximum so far, corrects what was summed with a smaller one.
CANN_INLINE void exponentials(float* scores, float* out, int64_t columns, float& maximum, float& sum) {
  Vec most = broadcast(maximum);
  for (int64_t j = 0; j < kBlock; j += kLanes) most = larger(load(scores + j), most);
  const float now = max_lanes(most);
  if (now != maximum) {
    const Vec correction = exp_nonpositive(broadcast(maximum) - broadcast(now));
    for (int64_t c = 0; c < columns; c += kLanes) store(out + c, load(out + c) * correction);
    sum *= correction[0];
    maximum = now;
  }
  const Vec center = broadcast(now);
  Vec total = {};
  for (int64_t j = 0; j < kBlock; j += kLanes) {
    const Vec p = exp_nonpositive(load(scores + j) - center);
    store(scores + j, p);
    total += p;
  }
  sum += sum_lanes(total);
}

void forward_block(float* out, float* maximum, float* sum, const float* q, const AttentionOperands& o,
                   const AttentionView& view, int64_t first, int64_t rows) {
  alignas(64) float scores[kBlock * kBlock];
  memset(out, 0, rows * o.value_size * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) maximum[r] = kLowest, sum[r] = 0.0f;
  const Span span = seen_by(view, first, first + rows - 1);
  for (int64_t key = span.begin / kBlock * kBlock; key < span.end; key += kBlock) {
    const int64_t count = view.keys - key < kBlock ? view.keys - key : kBlock;
    multiply(scores, kBlock, rows, kBlock, {q, o.size, 1}, o.k_transposed + key * o.size, kBlock, o.size, false);
    for (int64_t r = 0; r < rows; ++r) {
      apply_view(scores + r * kBlock, view, first + r, key, count);
      exponentials(scores + r * kBlock, out + r * o.value_size, o.value_size, maximum[r], sum[r]);
    }
    multiply(out, o.value_size, rows, o.value_size, {scores, kBlock, 1}, o.v + key * o.value_size, o.value_size, count,
             true);
  }
}

// ---- Backward

// p = e^(score - log_sum) in place of the scores, and p (dp - delta) in place of dp.
CANN_INLINE void derivatives(float* p, float* dp, float log_sum, float delta) {
  const Vec center = broadcast(log_sum), shift = broadcast(delta);
  for (int64_t j = 0; j < kBlock; j += kLanes) {
    const Vec v = exp_nonpositive(load(p + j) - center);
    store(p + j, v);
    store(dp + j, v * (load(dp + j) - shift));
  }
}

// The gradients that queries [first, first + rows) and keys [key, key + count) give each other.
void backward_block(float* dq, float* dk, float* dv, const AttentionOperands& o, const AttentionView& view,
                    const float* log_sum, const float* delta, int64_t first, int64_t rows, int64_t key, int64_t count) {
  alignas(64) float p[kBlock * kBlock], ds[kBlock * kBlock];
  const float *q = o.q + first * o.size, *d_out = o.d_out + first * o.value_size;
  multiply(p, kBlock, rows, kBlock, {q, o.size, 1}, o.k_transposed + key * o.size, kBlock, o.size, false);
  multiply(ds, kBlock, rows, kBlock, {d_out, o.value_size, 1}, o.v_transposed + key * o.value_size, kBlock,
           o.value_size, false);
  for (int64_t r = 0; r < rows; ++r) {
    apply_view(p + r * kBlock, view, first + r, key, count);
    derivatives(p + r * kBlock, ds + r * kBlock, log_sum[first + r], delta[first + r]);
  }
  multiply(dv + key * o.value_size, o.value_size, count, o.value_size, {p, 1, kBlock}, d_out, o.value_size, rows, true);
  multiply(dk + key * o.size, o.size, count, o.size, {ds, 1, kBlock}, q, o.size, rows, true);
  multiply(dq + first * o.size, o.size, rows, o.size, {ds, kBlock, 1}, o.k + key * o.size, o.size, count, true);
}

void backward_head(float* dq, float* dk, float* dv, const AttentionOperands& o, const AttentionView& view,
                   const float* log_sum, const float* delta) {
  for (int64_t key = 0; key < view.keys; key += kBlock) {
    const int64_t count = view.keys - key < kBlock ? view.keys - key : kBlock;
    for (int64_t first = 0; first < view.queries; first += kBlock) {
      const int64_t rows = view.queries - first < kBlock ? view.queries - first : kBlock;
      const Span span = seen_by(view, first, first + rows - 1);
      if (span.empty() || span.end <= key || span.begin >= key + count) continue;
      backward_block(dq, dk, dv, o, view, log_sum, delta, first, rows, key, count);
    }
  }
}

}  // namespace

extern const AttentionKernels attention = {
    .pack = {&pack_rows<float>, &pack_rows<BFloat16>, &pack_rows<Half>},
    .transpose = {&transpose_rows<float>, &transpose_rows<BFloat16>, &transpose_rows<Half>},
    .unpack = {&unpack_rows<float>, &unpack_rows<BFloat16>, &unpack_rows<Half>},
    .forward = &forward_block,
    .backward = &backward_head,
};

}  // namespace cann::kernels::CANN_KERNEL_SET
