#include "aten/contiguous_runs.h"

#include <algorithm>
#include <array>

namespace cann::aten {
namespace {

constexpr int64_t kBuffered = 512;  // elements

using Run = c10::function_ref<void(char* const* data, int64_t n)>;

template <class T>
void copy_strided(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<T*>(to + i * to_stride) = *reinterpret_cast<const T*>(from + i * from_stride);
  }
}

// One row of the iterator's loop, `T` an integer of an element's size.
template <class T>
void run_row(int operands, char* const* data, const int64_t* strides, int64_t n, Run run) {
  constexpr int64_t kSize = sizeof(T);
  if (std::all_of(strides, strides + operands, [](int64_t stride) { return stride == kSize; })) return run(data, n);
  T buffers[kMaxRunOperands][kBuffered];
  for (int64_t begin = 0; begin < n; begin += kBuffered) {
    const int64_t count = std::min(kBuffered, n - begin);
    std::array<char*, kMaxRunOperands> at{};
    for (int i = 0; i < operands; ++i) {
      char* place = data[i] + begin * strides[i];
      at[i] = strides[i] == kSize ? place : reinterpret_cast<char*>(buffers[i]);
      if (i > 0 && strides[i] != kSize) copy_strided<T>(at[i], kSize, place, strides[i], count);
    }
    run(at.data(), count);
    if (strides[0] != kSize) copy_strided<T>(data[0] + begin * strides[0], strides[0], at[0], kSize, count);
  }
}

}  // namespace

void for_each_contiguous_run(at::TensorIteratorBase& iterator, Run run) {
  const int operands = iterator.ntensors();
  const int64_t size = iterator.element_size(0);
  TORCH_INTERNAL_ASSERT(operands <= kMaxRunOperands && iterator.noutputs() == 1 && (size == 2 || size == 4));
  // `strides` has those within a row, then those from row to row.
  iterator.for_each([&](char** base, const int64_t* strides, int64_t n, int64_t rows) {
    std::array<char*, kMaxRunOperands> data{};
    std::copy_n(base, operands, data.begin());
    for (int64_t row = 0; row < rows; ++row) {
      size == 2 ? run_row<uint16_t>(operands, data.data(), strides, n, run)
                : run_row<uint32_t>(operands, data.data(), strides, n, run);
      for (int i = 0; i < operands; ++i) data[i] += strides[operands + i];
    }
  });
}

}  // namespace cann::aten
