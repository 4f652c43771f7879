#include "aten/fused/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "aten/element.h"
#include "aten/kernel_choice.h"
#include "aten/parallel.h"
#include "kernels/kernels.h"

namespace cann::aten::fused {
namespace {

using at::Tensor;
using kernels::kAttentionBlock;
using kernels::kAttentionSpareRows;

int64_t padded(int64_t columns) {
  return (columns + kernels::kAttentionColumns - 1) / kernels::kAttentionColumns * kernels::kAttentionColumns;
}
int64_t blocks(int64_t rows) { return (rows + kAttentionBlock - 1) / kAttentionBlock; }

Tensor floats(c10::IntArrayRef sizes) { return at::empty(sizes, at::dtype(at::kFloat)); }

// Rows of a tensor of four dimensions.
char* rows_at(const Tensor& t, int64_t batch, int64_t head, int64_t row = 0) {
  const int64_t offset = batch * t.stride(0) + head * t.stride(1) + row * t.stride(2);
  return static_cast<char*>(t.data_ptr()) + offset * static_cast<int64_t>(t.element_size());
}

// The memory of one row of statistics, (B, N, Sq).
float& statistic(const Tensor& t, int64_t batch, int64_t head, int64_t row) {
  return t.data_ptr<float>()[batch * t.stride(0) + head * t.stride(1) + row * t.stride(2)];
}

bool has_whole_rows(const Tensor& t) { return t.dim() == 4 && (t.stride(3) == 1 || t.size(3) == 1) && !t.is_neg(); }

// What forward and backward have in common: sizes, and packing of the operands of one head.
class Attention {
 public:
  explicit Attention(const AttentionInputs& inputs)
      : inputs_(inputs),
        kernels_(*kernels::kernels().attention),
        element_(static_cast<int>(*element_of(inputs.q.scalar_type()))),
        batch(inputs.q.size(0)),
        heads(inputs.q.size(1)),
        kv_heads(inputs.k.size(1)),
        queries(inputs.q.size(2)),
        keys(inputs.k.size(2)),
        size(padded(inputs.q.size(3))),
        value_size(padded(inputs.v.size(3))) {}

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  const kernels::AttentionKernels& kernels() const { return kernels_; }

  // `rows` rows from `row` on.
  void pack(float* to, const Tensor& t, int64_t b, int64_t head, int64_t row, int64_t rows, double scale = 1) const {
    kernels_.pack[element_](to, rows_at(t, b, head, row), t.stride(2), rows, t.size(3), padded(t.size(3)),
                            static_cast<float>(scale));
  }
  void transpose(float* to, const Tensor& t, int64_t b, int64_t head) const {
    kernels_.transpose[element_](to, rows_at(t, b, head), t.stride(2), t.size(2), t.size(3), padded(t.size(3)));
  }
  void unpack(const Tensor& to, int64_t b, int64_t head, int64_t row, const float* from, int64_t rows,
              const float* scale, int64_t scale_step) const {
    kernels_.unpack[element_](rows_at(to, b, head, row), to.stride(2), from, rows, to.size(3), padded(to.size(3)),
                              scale, scale_step);
  }

  kernels::AttentionView view(int64_t b, int64_t head) const {
    kernels::AttentionView view{.queries = queries,
                                .keys = keys,
                                .before = inputs_.before,
                                .after = inputs_.after,
                                .bias_scale = static_cast<float>(inputs_.bias_scale)};
    if (const Tensor& t = inputs_.masked; t.defined()) {
      view.masked = at_head<bool>(t, b, head);
      view.masked_row = t.size(2) > 1 ? t.stride(2) : 0;
    }
    if (const Tensor& t = inputs_.bias; t.defined()) {
      view.bias = at_head<float>(t, b, head);
      view.bias_row = t.size(2) > 1 ? t.stride(2) : 0;
    }
    return view;
  }

 private:
  template <class T>
  static const T* at_head(const Tensor& t, int64_t b, int64_t head) {
    return t.const_data_ptr<T>() + (t.size(0) > 1 ? b * t.stride(0) : 0) + (t.size(1) > 1 ? head * t.stride(1) : 0);
  }

  const AttentionInputs& inputs_;
  const kernels::AttentionKernels& kernels_;
  int element_;

 public:
  const int64_t batch, heads, kv_heads, queries, keys;
  const int64_t size, value_size;  // padded
};

// The packed block of queries and its sums that one thread works on.
struct ForwardScratch {
  static int64_t floats(const Attention& a) {
    return (kAttentionBlock + kAttentionSpareRows) * (a.size + a.value_size);
  }
  ForwardScratch(float* memory, const Attention& a)
      : q(memory), out(memory + (kAttentionBlock + kAttentionSpareRows) * a.size) {}
  float *q, *out;
};

void write_block(const Attention& a, const Tensor& out, const AttentionStatistics& statistics, int64_t b, int64_t head,
                 int64_t first, int64_t rows, const float* sums, const float* maximum, const float* sum) {
  float inverse[kAttentionBlock];
  for (int64_t r = 0; r < rows; ++r) inverse[r] = sum[r] == 0 ? 0.0f : 1.0f / sum[r];
  a.unpack(out, b, head, first, sums, rows, inverse, 1);
  for (int64_t r = 0; r < rows; ++r) {
    if (statistics.log_sum.defined()) {
      statistic(statistics.log_sum, b, head, first + r) =
          sum[r] == 0 ? std::numeric_limits<float>::infinity() : maximum[r] + std::log(sum[r]);
    }
    if (statistics.maximum.defined()) {
      statistic(statistics.maximum, b, head, first + r) = maximum[r];
      statistic(statistics.sum, b, head, first + r) = sum[r];
    }
  }
}

// Packed operands, and gradients of keys and values, of one query head in the backward.
class BackwardScratch {
 public:
  static int64_t floats(const Attention& a) {
    const int64_t query_rows = a.queries + kAttentionSpareRows, key_rows = a.keys + kAttentionSpareRows;
    return query_rows * (2 * a.size + a.value_size + 2) + key_rows * a.size +
           blocks(a.keys) * kAttentionBlock * (a.size + a.value_size);
  }
  BackwardScratch(float* memory, const Attention& a) {
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    const int64_t query_rows = a.queries + kAttentionSpareRows, key_rows = a.keys + kAttentionSpareRows;
    q = take(query_rows * a.size), dq = take(query_rows * a.size), d_out = take(query_rows * a.value_size);
    log_sum = take(query_rows), delta = take(query_rows), k = take(key_rows * a.size);
    k_transposed = take(blocks(a.keys) * kAttentionBlock * a.size);
    v_transposed = take(blocks(a.keys) * kAttentionBlock * a.value_size);
  }
  float *q, *dq, *d_out, *log_sum, *delta, *k, *k_transposed, *v_transposed;
};

// The products of each query's out and d_out: `out` is packed a row at a time into `row`.
void fill_delta(const Attention& a, const BackwardScratch& s, const Tensor& out, int64_t b, int64_t head, float* row) {
  for (int64_t i = 0; i < a.queries; ++i) {
    a.pack(row, out, b, head, i, 1);
    const float* g = s.d_out + i * a.value_size;
    double product = 0;
    for (int64_t c = 0; c < a.value_size; ++c) product += static_cast<double>(row[c]) * g[c];
    s.delta[i] = static_cast<float>(product);
  }
}

}  // namespace

bool takes_attention(const AttentionInputs& inputs) {
  const auto fits = [](const Tensor& t, at::ScalarType type) {
    return !t.defined() || (t.scalar_type() == type && has_whole_rows(t));
  };
  return element_of(inputs.q.scalar_type()).has_value() && inputs.k.scalar_type() == inputs.q.scalar_type() &&
         inputs.v.scalar_type() == inputs.q.scalar_type() && has_whole_rows(inputs.q) && has_whole_rows(inputs.k) &&
         has_whole_rows(inputs.v) && inputs.q.numel() > 0 && inputs.k.numel() > 0 && inputs.v.numel() > 0 &&
         inputs.q.size(0) == inputs.k.size(0) && inputs.q.size(3) == inputs.k.size(3) &&
         inputs.k.size(2) == inputs.v.size(2) && inputs.k.size(1) == inputs.v.size(1) &&
         inputs.q.size(1) % inputs.k.size(1) == 0 && fits(inputs.masked, at::kBool) && fits(inputs.bias, at::kFloat);
}

void attention_forward(const AttentionInputs& inputs, const Tensor& out, const AttentionStatistics& statistics) {
  note_kernel_choice(KernelChoice::kOwn);
  const Attention a(inputs);
  const int64_t kv_count = a.batch * a.kv_heads, key_blocks = blocks(a.keys);
  const Tensor k_transposed = floats({kv_count, key_blocks * kAttentionBlock, a.size});
  const Tensor v = floats({kv_count, a.keys + kAttentionSpareRows, a.value_size});
  float *k_data = k_transposed.mutable_data_ptr<float>(), *v_data = v.mutable_data_ptr<float>();
  parallel_for(0, kv_count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      a.transpose(k_data + i * k_transposed.stride(0), inputs.k, i / a.kv_heads, i % a.kv_heads);
      a.pack(v_data + i * v.stride(0), inputs.v, i / a.kv_heads, i % a.kv_heads, 0, a.keys);
    }
  });
  const int64_t query_blocks = blocks(a.queries);
  const Tensor scratch = floats({at::get_num_threads(), ForwardScratch::floats(a)});
  float* scratch_data = scratch.mutable_data_ptr<float>();
  parallel_for(0, a.batch * a.heads * query_blocks, 1, [&](int64_t begin, int64_t end) {
    const ForwardScratch s(scratch_data + at::get_thread_num() * scratch.stride(0), a);
    float maximum[kAttentionBlock], sum[kAttentionBlock];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / query_blocks / a.heads, head = i / query_blocks % a.heads;
      const int64_t first = i % query_blocks * kAttentionBlock, rows = std::min(kAttentionBlock, a.queries - first);
      const int64_t kv = b * a.kv_heads + a.kv_head(head);
      a.pack(s.q, inputs.q, b, head, first, rows, inputs.scale);
      a.kernels().forward(s.out, maximum, sum, s.q,
                          {.size = a.size,
                           .value_size = a.value_size,
                           .k_transposed = k_data + kv * k_transposed.stride(0),
                           .v = v_data + kv * v.stride(0)},
                          a.view(b, head), first, rows);
      write_block(a, out, statistics, b, head, first, rows, s.out, maximum, sum);
    }
  });
}

void attention_backward(const AttentionInputs& inputs, const Tensor& out, const Tensor& d_out, const Tensor& log_sum,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  note_kernel_choice(KernelChoice::kOwn);
  const Attention a(inputs);
  const int64_t count = a.batch * a.heads, key_rows = a.keys + kAttentionSpareRows;
  // Of every query head, so that heads which share keys need not wait for each other.
  const Tensor key_gradients = at::zeros({count, key_rows, a.size}, at::dtype(at::kFloat));
  const Tensor value_gradients = at::zeros({count, key_rows, a.value_size}, at::dtype(at::kFloat));
  float *dk_data = key_gradients.mutable_data_ptr<float>(), *dv_data = value_gradients.mutable_data_ptr<float>();
  const Tensor scratch = floats({at::get_num_threads(), BackwardScratch::floats(a)});
  float* scratch_data = scratch.mutable_data_ptr<float>();
  const auto scale = static_cast<float>(inputs.scale);
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    const BackwardScratch s(scratch_data + at::get_thread_num() * scratch.stride(0), a);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / a.heads, head = i % a.heads, kv = a.kv_head(head);
      a.pack(s.q, inputs.q, b, head, 0, a.queries, inputs.scale);
      a.pack(s.d_out, d_out, b, head, 0, a.queries);
      a.pack(s.k, inputs.k, b, kv, 0, a.keys);
      a.transpose(s.k_transposed, inputs.k, b, kv);
      a.transpose(s.v_transposed, inputs.v, b, kv);
      fill_delta(a, s, out, b, head, s.dq);
      for (int64_t r = 0; r < a.queries; ++r) s.log_sum[r] = statistic(log_sum, b, head, r);
      std::fill_n(s.dq, a.queries * a.size, 0.0f);
      a.kernels().backward(s.dq, dk_data + i * key_rows * a.size, dv_data + i * key_rows * a.value_size,
                           {.size = a.size,
                            .value_size = a.value_size,
                            .k_transposed = s.k_transposed,
                            .q = s.q,
                            .k = s.k,
                            .v_transposed = s.v_transposed,
                            .d_out = s.d_out},
                           a.view(b, head), s.log_sum, s.delta);
      a.unpack(dq, b, head, 0, s.dq, a.queries, &scale, 0);
    }
  });
  const int64_t group = a.heads / a.kv_heads;
  const auto one = 1.0f;
  parallel_for(0, a.batch * a.kv_heads, 1, [&](int64_t begin, int64_t end) {
    const auto sum_group = [&](float* data, int64_t width) {
      for (int64_t g = 1; g < group; ++g) {
        for (int64_t i = 0; i < a.keys * width; ++i) data[i] += data[g * key_rows * width + i];
      }
      return data;
    };
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / a.kv_heads, kv = i % a.kv_heads, first = i * group * key_rows;
      a.unpack(dk, b, kv, 0, sum_group(dk_data + first * a.size, a.size), a.keys, &one, 0);
      a.unpack(dv, b, kv, 0, sum_group(dv_data + first * a.value_size, a.value_size), a.keys, &one, 0);
    }
  });
}

}  // namespace cann::aten::fused
