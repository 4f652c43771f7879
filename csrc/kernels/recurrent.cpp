#include "kernels/recurrent.h"

#include "kernels/rows.h"
#include "kernels/vec_math.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

// The part of a [B, width] matrix that belongs to a row; nullptr stays.
template <class T, class Pointer>
CANN_INLINE T* row_of(Pointer* matrix, int64_t row, int64_t width) {
  return matrix == nullptr ? nullptr : static_cast<T*>(matrix) + row * width;
}

// What the read position of `read` has in an optional vector.
template <class T>
CANN_INLINE Vec read_or_zero(auto read, const T* p) {
  return p == nullptr ? Vec{} : read(p);
}

// The biased part of a gate that comes from one of its two sources.
template <class T>
CANN_INLINE Vec part_of_gate(auto read, const T* source, const T* bias, int64_t offset) {
  const Vec value = read(source + offset);
  return bias == nullptr ? value : value + read(bias + offset);
}

template <class T>
void lstm_rows(const LstmForward& a, int64_t first, int64_t last) {
  const int64_t n = a.hidden;
  const T *input_bias = static_cast<const T*>(a.input_bias), *hidden_bias = static_cast<const T*>(a.hidden_bias);
  for (int64_t row = first; row < last; ++row) {
    T *hy = row_of<T>(a.hy, row, n), *cy = row_of<T>(a.cy, row, n), *activated = row_of<T>(a.activated, row, 4 * n);
    const T *input = row_of<const T>(a.from_input, row, 4 * n), *hidden = row_of<const T>(a.from_hidden, row, 4 * n),
            *cx = row_of<const T>(a.cx, row, n);
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const auto gate = [=](int k) __attribute__((always_inline)) {
            return part_of_gate(read, input, input_bias, k * n) + part_of_gate(read, hidden, hidden_bias, k * n);
          };
          const Vec in = sigmoid(gate(0)).value, forget = sigmoid(gate(1)).value, cell = tanh(gate(2)),
                    out = sigmoid(gate(3)).value, state = fma(forget, read(cx), in * cell);
          write(activated, in);
          write(activated + n, forget);
          write(activated + 2 * n, cell);
          write(activated + 3 * n, out);
          write(cy, state);
          write(hy, out * tanh(state));
        });
  }
}

template <class T>
void lstm_backward_rows(const LstmBackward& a, int64_t first, int64_t last) {
  const int64_t n = a.hidden;
  for (int64_t row = first; row < last; ++row) {
    T *grad_gates = row_of<T>(a.grad_gates, row, 4 * n), *grad_cx = row_of<T>(a.grad_cx, row, n);
    const T *grad_hy = row_of<const T>(a.grad_hy, row, n), *grad_cy = row_of<const T>(a.grad_cy, row, n),
            *cx = row_of<const T>(a.cx, row, n), *cy = row_of<const T>(a.cy, row, n),
            *activated = row_of<const T>(a.activated, row, 4 * n);
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const Vec one = broadcast(1.0f), in = read(activated), forget = read(activated + n),
                    cell = read(activated + 2 * n), out = read(activated + 3 * n), dh = read_or_zero(read, grad_hy),
                    squashed = tanh(read(cy)),
                    dc = fma(dh * out, one - squashed * squashed, read_or_zero(read, grad_cy));
          write(grad_gates, dc * cell * in * (one - in));
          write(grad_gates + n, dc * read(cx) * forget * (one - forget));
          write(grad_gates + 2 * n, dc * in * (one - cell * cell));
          write(grad_gates + 3 * n, dh * squashed * out * (one - out));
          write(grad_cx, dc * forget);
        });
  }
}

template <class T>
void gru_rows(const GruForward& a, int64_t first, int64_t last) {
  const int64_t n = a.hidden;
  const T *input_bias = static_cast<const T*>(a.input_bias), *hidden_bias = static_cast<const T*>(a.hidden_bias);
  for (int64_t row = first; row < last; ++row) {
    T *hy = row_of<T>(a.hy, row, n), *workspace = row_of<T>(a.workspace, row, 5 * n);
    const T *input = row_of<const T>(a.from_input, row, 3 * n), *hidden = row_of<const T>(a.from_hidden, row, 3 * n),
            *hx = row_of<const T>(a.hx, row, n);
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const auto from_input = [=](int k) __attribute__((always_inline)) {
            return part_of_gate(read, input, input_bias, k * n);
          };
          const auto from_hidden = [=](int k) __attribute__((always_inline)) {
            return part_of_gate(read, hidden, hidden_bias, k * n);
          };
          const Vec reset = sigmoid(from_input(0) + from_hidden(0)).value,
                    update = sigmoid(from_input(1) + from_hidden(1)).value, hidden_new = from_hidden(2),
                    fresh = tanh(fma(reset, hidden_new, from_input(2))), h = read(hx);
          write(workspace, reset);
          write(workspace + n, update);
          write(workspace + 2 * n, fresh);
          write(workspace + 3 * n, h);
          write(workspace + 4 * n, hidden_new);
          write(hy, fma(update, h - fresh, fresh));
        });
  }
}

template <class T>
void gru_backward_rows(const GruBackward& a, int64_t first, int64_t last) {
  const int64_t n = a.hidden;
  for (int64_t row = first; row < last; ++row) {
    T *grad_input = row_of<T>(a.grad_input, row, 3 * n), *grad_hidden = row_of<T>(a.grad_hidden, row, 3 * n),
      *grad_hx = row_of<T>(a.grad_hx, row, n);
    const T *grad_hy = row_of<const T>(a.grad_hy, row, n), *workspace = row_of<const T>(a.workspace, row, 5 * n);
    for_each_vector(
        n, [=](auto read, auto write) __attribute__((always_inline)) {
          const Vec one = broadcast(1.0f), dh = read(grad_hy), reset = read(workspace), update = read(workspace + n),
                    fresh = read(workspace + 2 * n), h = read(workspace + 3 * n), hidden_new = read(workspace + 4 * n),
                    grad_update = dh * (h - fresh) * update * (one - update),
                    grad_new = dh * (one - update) * (one - fresh * fresh),
                    grad_reset = grad_new * hidden_new * reset * (one - reset);
          write(grad_input, grad_reset);
          write(grad_input + n, grad_update);
          write(grad_input + 2 * n, grad_new);
          write(grad_hidden, grad_reset);
          write(grad_hidden + n, grad_update);
          write(grad_hidden + 2 * n, grad_new * reset);
          write(grad_hx, dh * update);
        });
  }
}

}  // namespace

extern const RecurrentKernels recurrent = {
    .lstm = {&lstm_rows<float>, &lstm_rows<BFloat16>, &lstm_rows<Half>},
    .lstm_backward = {&lstm_backward_rows<float>, &lstm_backward_rows<BFloat16>, &lstm_backward_rows<Half>},
    .gru = {&gru_rows<float>, &gru_rows<BFloat16>, &gru_rows<Half>},
    .gru_backward = {&gru_backward_rows<float>, &gru_backward_rows<BFloat16>, &gru_backward_rows<Half>},
};

}  // namespace cann::kernels::CANN_KERNEL_SET
