// The dense gradient of an embedding's table. ATen clears the table on one thread and adds every row by an operator of
// its own; here each thread clears a part of the table and adds the rows that fall into it. The additions are ATen's,
// in its order, so the bits are the same, whatever the number of threads.

#include "aten/fused/embedding.h"

#include <algorithm>
#include <cstring>

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
      (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt) || grad_output.numel() == 0 ||
      grad_output.numel() != indices.numel() * grad_output.size(-1)) {
    return general<at::_ops::embedding_dense_backward>(grad_output, indices, std::move(num_weights),
                                                       std::move(padding_idx), scale_grad_by_freq);
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
  register_native<at::_ops::embedding_dense_backward, &embedding_dense_backward>(aten);
}

}  // namespace cann::aten
