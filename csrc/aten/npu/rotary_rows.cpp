#include "aten/npu/rotary_rows.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "aten/fused/plain.h"
#include "aten/kernel_choice.h"
#include "aten/npu/raw_memory.h"
#include "kernels/kernels.h"

namespace cann::aten::npu {
namespace {

using at::Tensor;

constexpr size_t kOperands = 4;
using Offsets = std::array<int64_t, kOperands>;

// Dimensions that are walked together, with the operands' strides along each.
struct Axis {
  int64_t size;
  Offsets strides;
};
using Axes = c10::SmallVector<Axis, 6>;

int64_t count(const Axes& axes) {
  int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

// Where each operand is at a position in the order of the axes.
Offsets offsets_at(const Axes& axes, int64_t position) {
  Offsets result{};
  for (auto axis = axes.rbegin(); axis != axes.rend() && position != 0; ++axis) {
    const int64_t index = position % axis->size;
    position /= axis->size;
    for (size_t k = 0; k < kOperands; ++k) result[k] += index * axis->strides[k];
  }
  return result;
}

bool are_rows(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  if (!raw_element({&x, &cos, &sin}).has_value() || x.dim() < 1 || x.numel() == 0 || cos.dim() != x.dim() ||
      cos.sizes() != sin.sizes() || cos.strides() != sin.strides() || cos.size(-1) != x.size(-1) || x.stride(-1) != 1 ||
      cos.stride(-1) != 1) {
    return false;
  }
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (cos.size(d) != 1 && cos.size(d) != x.size(d)) return false;
  }
  return true;
}

// The stride with which a table is read along dimension d of a tensor it broadcasts to.
int64_t table_stride(const Tensor& table, int64_t d) { return table.size(d) == 1 ? 0 : table.stride(d); }

char* bytes(const Tensor& tensor, int64_t offset) {
  return static_cast<char*>(tensor.mutable_data_ptr()) + offset * tensor.element_size();
}
const char* const_bytes(const Tensor& tensor, int64_t offset) {
  return static_cast<const char*>(tensor.const_data_ptr()) + offset * tensor.element_size();
}

// The last axis, taken out: the rows of one call of a kernel.
Axis take_rows(Axes& axes) { return axes.empty() ? Axis{1, {}} : axes.pop_back_val(); }

}  // namespace

Tensor rotary_by_rows(const Tensor& x, const Tensor& cos, const Tensor& sin, Rotation rotation) {
  if (!are_rows(x, cos, sin)) return {};
  Tensor y = at::empty_like(x);
  if (y.stride(-1) != 1) return {};
  Axes axes;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    axes.push_back({x.size(d), {y.stride(d), x.stride(d), table_stride(cos, d)}});
  }
  const Axis last = take_rows(axes);
  const kernels::RotaryRows layout{.rows = last.size,
                                   .columns = x.size(-1),
                                   .x_stride = last.strides[1],
                                   .y_stride = last.strides[0],
                                   .table_stride = last.strides[2]};
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel =
      kernels::kernels().rotary->forward[static_cast<int>(rotation)][static_cast<int>(*raw_element({&x}))];
  parallel(count(axes), last.size * x.size(-1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [at_y, at_x, at_table, unused] = offsets_at(axes, i);
      kernel(bytes(y, at_y), const_bytes(x, at_x), const_bytes(cos, at_table), const_bytes(sin, at_table), layout);
    }
  });
  return y;
}

std::optional<std::tuple<Tensor, Tensor, Tensor>> rotary_backward_by_rows(const Tensor& dy, const Tensor& x,
                                                                          const Tensor& cos, const Tensor& sin,
                                                                          Rotation rotation) {
  if (!are_rows(x, cos, sin) || raw_element({&dy, &x}) != raw_element({&x}) || dy.sizes() != x.sizes() ||
      dy.stride(-1) != 1) {
    return std::nullopt;
  }
  Tensor dx = at::empty_like(x);
  if (dx.stride(-1) != 1) return std::nullopt;
  // Each row of the tables belongs to one thread, which walks the rows of x that share it.
  Axes tables, sharing;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    const bool shared = cos.size(d) == 1;
    (shared ? sharing : tables).push_back({x.size(d), {dx.stride(d), x.stride(d), dy.stride(d), table_stride(cos, d)}});
  }
  const int64_t columns = x.size(-1), table_rows = count(tables);
  const Axis last = take_rows(sharing);
  const int64_t calls = count(sharing);
  Tensor dcos = at::zeros(cos.sizes(), cos.options().dtype(at::kFloat)), dsin = at::zeros_like(dcos);
  float *dc = dcos.mutable_data_ptr<float>(), *ds = dsin.mutable_data_ptr<float>();
  const kernels::RotaryRows layout{.rows = last.size,
                                   .columns = columns,
                                   .x_stride = last.strides[1],
                                   .y_stride = last.strides[0],
                                   .table_stride = 0,
                                   .dy_stride = last.strides[2]};
  note_kernel_choice(KernelChoice::kOwn);
  const auto kernel =
      kernels::kernels().rotary->backward[static_cast<int>(rotation)][static_cast<int>(*raw_element({&x}))];
  parallel(table_rows, calls * last.size * columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Offsets first = offsets_at(tables, row);
      for (int64_t call = 0; call < calls; ++call) {
        const Offsets more = offsets_at(sharing, call);
        kernel(bytes(dx, first[0] + more[0]), dc + row * columns, ds + row * columns,
               const_bytes(dy, first[2] + more[2]), const_bytes(x, first[1] + more[1]), const_bytes(cos, first[3]),
               const_bytes(sin, first[3]), layout);
      }
    }
  });
  return std::tuple(std::move(dx), dcos.to(cos.scalar_type()), dsin.to(sin.scalar_type()));
}

}  // namespace cann::aten::npu
