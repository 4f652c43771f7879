// An embedding and the dense gradient of its table. The forward copies rows: ATen goes through index_select, whose
// iterator costs more than the copies of 16-bit rows. In the backward ATen clears the table on one thread and adds
// every row by an operator of its own; here each thread clears a part of the table and adds the rows that fall into it.
// The additions are ATen's, in its order, so the bits are the same, whatever the number of threads.

#include "aten/fused/embedding.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "aten/device_assert.h"
#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/plain.h"
#include "kernels/kernels.h"
#include "runtime/host_guard.h"

namespace cann::aten {
namespace {

using at::Tensor;
using kernels::Pointwise;

namespace ops = at::_ops;

bool is_index(at::ScalarType type) { return type == at::kLong || type == at::kInt; }

// Copies the rows that `indices` name; false, with some of the result not written, if one is outside the table.
template <class Index>
bool copy_rows(char* to, const char* table, const Tensor& indices, int64_t rows, int64_t row_bytes, int64_t columns) {
  const Index* index = indices.const_data_ptr<Index>();
  std::atomic<bool> all_inside = true;
  parallel(indices.numel(), columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (index[i] < 0 || index[i] >= rows) {
        all_inside.store(false, std::memory_order_relaxed);
        return;
      }
      std::memcpy(to + i * row_bytes, table + index[i] * row_bytes, row_bytes);
    }
  });
  return all_inside.load(std::memory_order_relaxed);
}

Tensor embedding(const Tensor& weight, const Tensor& indices, c10::SymInt padding_idx, bool scale_grad_by_freq,
                 bool sparse) {
  const c10::Device device = weight.device();
  if (is_plain(weight, device) && is_plain(indices, device) && weight.dim() == 2 && is_index(indices.scalar_type()) &&
      weight.numel() > 0 && indices.numel() > 0) {
    const int64_t rows = weight.size(0), columns = weight.size(1), row_bytes = columns * weight.element_size();
    c10::SmallVector<int64_t, 6> shape(indices.sizes());
    shape.push_back(columns);
    Tensor result = empty_contiguous(shape, weight.scalar_type(), device);
    cann::check_host_can_write(result.const_data_ptr(), result.nbytes());
    char* to = static_cast<char*>(result.mutable_data_ptr());
    const char* table = static_cast<const char*>(weight.const_data_ptr());
    const bool copied = indices.scalar_type() == at::kLong
                            ? copy_rows<int64_t>(to, table, indices, rows, row_bytes, columns)
                            : copy_rows<int32_t>(to, table, indices, rows, row_bytes, columns);
    if (copied) return result;
  }
  try {
    return general<ops::embedding>(weight, indices, std::move(padding_idx), scale_grad_by_freq, sparse);
  } catch (const c10::Error& error) {
    rethrow_as_device_assert(ops::embedding::name, error);
  }
}

template <class Index>
void add_rows(char* table, const char* grad, const Tensor& indices, int64_t columns, int64_t rows, int64_t padding,
              kernels::Element element, int64_t element_bytes) {
  const Index* index = indices.const_data_ptr<Index>();
  const int64_t count = indices.numel(), row_bytes = columns * element_bytes;
  const auto add = kernels::kernels().pointwise->get(Pointwise::kAdd, element);
  parallel(rows, columns, [&](int64_t begin, int64_t end) {
    std::memset(table + begin * row_bytes, 0, (end - begin) * row_bytes);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = index[i];
      if (row < begin || row >= end || row == padding) continue;
      char* to = table + row * row_bytes;
      add(to, to, grad + i * row_bytes, nullptr, 1.0f, columns);
    }
  });
}

// An index outside the table adds nothing, as in ATen's kernel: the forward has refused it.
Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices, c10::SymInt num_weights,
                                c10::SymInt padding_idx, bool scale_grad_by_freq) {
  const c10::Device device = grad_output.device();
  if (scale_grad_by_freq || num_weights.is_symbolic() || padding_idx.is_symbolic() || !is_plain(grad_output, device) ||
      !is_plain(indices, device) || !element_of(grad_output.scalar_type()).has_value() || grad_output.dim() < 1 ||
      !is_index(indices.scalar_type()) || grad_output.numel() == 0 ||
      grad_output.numel() != indices.numel() * grad_output.size(-1)) {
    return general<ops::embedding_dense_backward>(grad_output, indices, std::move(num_weights), std::move(padding_idx),
                                                  scale_grad_by_freq);
  }
  const int64_t rows = num_weights.expect_int(), columns = grad_output.size(-1), padding = padding_idx.expect_int();
  const kernels::Element element = *element_of(grad_output.scalar_type());
  Tensor result = empty_contiguous({rows, columns}, grad_output.scalar_type(), device);
  char* table = static_cast<char*>(result.mutable_data_ptr());
  cann::check_host_can_write(table, result.nbytes());
  const char* grad = static_cast<const char*>(grad_output.const_data_ptr());
  if (indices.scalar_type() == at::kLong) {
    add_rows<int64_t>(table, grad, indices, columns, rows, padding, element, grad_output.element_size());
  } else {
    add_rows<int32_t>(table, grad, indices, columns, rows, padding, element, grad_output.element_size());
  }
  return result;
}

}  // namespace

void register_fused_embedding(torch::Library& aten) {
  register_native<ops::embedding, &embedding>(aten);
  register_native<ops::embedding_dense_backward, &embedding_dense_backward>(aten);
}

}  // namespace cann::aten
