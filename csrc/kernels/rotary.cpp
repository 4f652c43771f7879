#include "kernels/rotary.h"

#include "kernels/rows.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// R of whole interleaved pairs.
CANN_INLINE Vec turned(Vec v) {
  IntVec sign;
  for (int i = 0; i < kLanes; ++i) sign[i] = i % 2 == 0 ? INT32_MIN : 0;
  return from_bits(bits_of(lanes_from_afar<1>(v)) ^ sign);
}

template <class T>
CANN_INLINE void half_row(T* y, const T* x, const T* cos, const T* sin, int64_t half) {
  for_each_vector(
      half, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec a = read(x), b = read(x + half);
        write(y, a * read(cos) - b * read(sin));
        write(y + half, b * read(cos + half) + a * read(sin + half));
      });
}

template <class T>
CANN_INLINE void half_row_backward(T* dx, float* dcos, float* dsin, const T* dy, const T* x, const T* cos, const T* sin,
                                   int64_t half) {
  for_each_vector(
      half, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec g = read(dy), h = read(dy + half), a = read(x), b = read(x + half);
        write(dx, g * read(cos) + h * read(sin + half));
        write(dx + half, h * read(cos + half) - g * read(sin));
        write(dcos, fma(g, a, read(dcos)));
        write(dcos + half, fma(h, b, read(dcos + half)));
        write(dsin, fma(-g, b, read(dsin)));
        write(dsin + half, fma(h, a, read(dsin + half)));
      });
}

template <class T>
CANN_INLINE void interleaved_row(T* y, const T* x, const T* cos, const T* sin, int64_t columns) {
  for_each_vector(
      columns, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec v = read(x);
        write(y, v * read(cos) + turned(v) * read(sin));
      });
}

template <class T>
CANN_INLINE void interleaved_row_backward(T* dx, float* dcos, float* dsin, const T* dy, const T* x, const T* cos,
                                          const T* sin, int64_t columns) {
  for_each_vector(
      columns, [=](auto read, auto write) __attribute__((always_inline)) {
        const Vec g = read(dy), v = read(x);
        write(dx, g * read(cos) - turned(g * read(sin)));
        write(dcos, fma(g, v, read(dcos)));
        write(dsin, fma(g, turned(v), read(dsin)));
      });
}

template <class T, bool kInterleaved>
void rotary_rows(void* y_, const void* x_, const void* cos_, const void* sin_, const RotaryRows& layout) {
  const RotaryRows l = layout;
  T* y = static_cast<T*>(y_);
  const T *x = static_cast<const T*>(x_), *cos = static_cast<const T*>(cos_), *sin = static_cast<const T*>(sin_);
  for (int64_t row = 0; row < l.rows; ++row) {
    if constexpr (kInterleaved) {
      interleaved_row(y, x, cos, sin, l.columns);
    } else {
      half_row(y, x, cos, sin, l.columns / 2);
    }
    y += l.y_stride, x += l.x_stride, cos += l.table_stride, sin += l.table_stride;
  }
}

template <class T, bool kInterleaved>
void rotary_backward_rows(void* dx_, float* dcos, float* dsin, const void* dy_, const void* x_, const void* cos_,
                          const void* sin_, const RotaryRows& layout) {
  const RotaryRows l = layout;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_), *cos = static_cast<const T*>(cos_),
          *sin = static_cast<const T*>(sin_);
  for (int64_t row = 0; row < l.rows; ++row) {
    if constexpr (kInterleaved) {
      interleaved_row_backward(dx, dcos, dsin, dy, x, cos, sin, l.columns);
    } else {
      half_row_backward(dx, dcos, dsin, dy, x, cos, sin, l.columns / 2);
    }
    dx += l.y_stride, dy += l.dy_stride, x += l.x_stride;
  }
}

}  // namespace

extern const RotaryKernels rotary = {
    .forward = {{&rotary_rows<float, false>, &rotary_rows<BFloat16, false>, &rotary_rows<Half, false>},
                {&rotary_rows<float, true>, &rotary_rows<BFloat16, true>, &rotary_rows<Half, true>}},
    .backward = {{&rotary_backward_rows<float, false>, &rotary_backward_rows<BFloat16, false>,
                  &rotary_backward_rows<Half, false>},
                 {&rotary_backward_rows<float, true>, &rotary_backward_rows<BFloat16, true>,
                  &rotary_backward_rows<Half, true>}},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
