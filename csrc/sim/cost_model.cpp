#include "sim/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

namespace cann::sim {
namespace {

enum class Kind : uint8_t {
  kUnknown,
  kFree,
  kMatmul,                   // inputs a, b
  kAddMatmul,                // inputs bias, a, b
  kLinear,                   // inputs x, weight [out, in]
  kGroupedMatmul,            // inputs x [rows, k], weights [groups, k, n]; rows fall on the groups evenly
  kGroupedMatmulWeightGrad,  // inputs x [rows, k], gradient [rows, n]; output [groups, k, n]
  kConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
  kGatherMatmul,       // all_gather of x, then x @ w
  kMatmulScatter,      // x @ w, then reduce_scatter or all_reduce
  kComposed,           // as kVector, but by a chain of small kernels in place of a fused one
  kVector,             // every input read once, every output written once
  kLookup,             // as many rows of the first input read as the output has
  kGradOfLookup,       // the gradient read once, the table's gradient written once
  kLstmLayer,          // inputs x [T, B, in], weights [4 H, in] and [4 H, H]
  kLstmLayerBackward,  // the same, then others
};

// Operators that carry no pointwise tag in PyTorch's schemas, or are not PyTorch's.
const std::unordered_map<std::string_view, Kind>& kinds() {
  using enum Kind;
  static const std::unordered_map<std::string_view, Kind> table = [] {
    std::unordered_map<std::string_view, Kind> t{
        {"mm", kMatmul},
        {"bmm", kMatmul},
        {"matmul", kMatmul},
        {"mv", kMatmul},
        {"dot", kMatmul},
        {"addmm", kAddMatmul},
        {"addmm_", kAddMatmul},
        {"baddbmm", kAddMatmul},
        {"addmv", kAddMatmul},
        {"addbmm", kAddMatmul},
        {"linear", kLinear},
        {"npu_linear", kLinear},
        {"grouped_matmul", kGroupedMatmul},
        {"grouped_matmul_weight_grad", kGroupedMatmulWeightGrad},
        {"npu_conv2d", kConvolution},
        {"npu_convolution", kConvolution},
        {"convolution", kConvolution},
        {"_convolution", kConvolution},
        {"convolution_backward", kConvolutionBackward},
        {"_scaled_dot_product_fused_attention_overrideable", kAttention},
        {"_scaled_dot_product_flash_attention_for_cpu", kAttention},
        {"_scaled_dot_product_flash_attention", kAttention},
        {"_scaled_dot_product_efficient_attention", kAttention},
        {"npu_fusion_attention", kAttention},
        {"npu_prompt_flash_attention", kAttention},
        {"_scaled_dot_product_fused_attention_overrideable_backward", kAttentionBackward},
        {"_scaled_dot_product_flash_attention_for_cpu_backward", kAttentionBackward},
        {"_scaled_dot_product_flash_attention_backward", kAttentionBackward},
        {"npu_fusion_attention_grad", kAttentionBackward},
        {"npu_fusion_attention_v2", kAttention},
        {"npu_fusion_attention_v3", kAttention},
        {"npu_fusion_attention_grad_v2", kAttentionBackward},
        {"npu_fusion_attention_grad_v3", kAttentionBackward},
        {"npu_fused_infer_attention_score", kAttention},
        {"npu_incre_flash_attention", kAttention},
        {"npu_all_gather_base_mm", kGatherMatmul},
        {"npu_mm_reduce_scatter_base", kMatmulScatter},
        {"npu_mm_all_reduce_base", kMatmulScatter},
        {"embedding", kLookup},
        {"index_select", kLookup},
        {"gather", kLookup},
        {"index", kLookup},
        {"embedding_dense_backward", kGradOfLookup},
        {"mkldnn_rnn_layer", kLstmLayer},
        {"mkldnn_rnn_layer_backward", kLstmLayerBackward},
        {"empty", kFree},
        {"empty_strided", kFree},
        {"empty_like", kFree},
        {"new_empty", kFree},
        {"detach", kFree},
        {"alias", kFree},
        {"resize_", kFree},
        {"set_", kFree},
        {"_unsafe_view", kFree},
        {"record_stream", kFree},
        {"lift_fresh", kFree},
    };
    for (const char* name : {"composed_rms_norm", "composed_rms_norm_backward", "composed_rotary_mul"}) {
      t.emplace(name, kComposed);
    }
    for (const char* name : {"native_layer_norm",
                             "native_layer_norm_backward",
                             "native_batch_norm",
                             "native_batch_norm_backward",
                             "native_group_norm",
                             "native_group_norm_backward",
                             "_fused_rms_norm",
                             "_fused_rms_norm_backward",
                             "npu_rms_norm",
                             "npu_rms_norm_backward",
                             "npu_add_rms_norm",
                             "npu_rotary_mul",
                             "npu_rotary_mul_backward",
                             "npu_swiglu",
                             "npu_swiglu_backward",
                             "npu_apply_adam_w",
                             "npu_gelu",
                             "npu_gelu_backward",
                             "npu_fast_gelu",
                             "npu_fast_gelu_backward",
                             "npu_silu",
                             "npu_silu_",
                             "npu_silu_backward",
                             "npu_mish",
                             "npu_mish_backward",
                             "npu_geglu",
                             "npu_geglu_grad",
                             "npu_add_layer_norm",
                             "npu_add_layer_norm_backward",
                             "npu_deep_norm",
                             "npu_deep_norm_backward",
                             "npu_gemma_rms_norm",
                             "npu_group_norm_silu",
                             "npu_dtype_cast",
                             "npu_dtype_cast_backward",
                             "npu_apply_rotary_pos_emb",
                             "npu_mrope",
                             "npu_cross_entropy_loss",
                             "npu_cross_entropy_loss_backward",
                             "npu_dropout_with_add_softmax",
                             "npu_dropout_with_add_softmax_backward",
                             "npu_scaled_masked_softmax",
                             "npu_scaled_masked_softmax_backward",
                             "npu_apply_adam",
                             "npu_bert_apply_adam",
                             "npu_dynamic_quant",
                             "npu_format_cast",
                             "npu_moe_gating_top_k",
                             "npu_moe_init_routing",
                             "npu_dropout_add",
                             "npu_dropout_backward",
                             "npu_moe_token_permute",
                             "npu_moe_token_permute_grad",
                             "npu_moe_token_unpermute",
                             "npu_moe_token_unpermute_grad",
                             "_softmax",
                             "_softmax_backward_data",
                             "_log_softmax",
                             "_log_softmax_backward_data",
                             "softmax",
                             "sum",
                             "mean",
                             "amax",
                             "amin",
                             "max",
                             "min",
                             "argmax",
                             "argmin",
                             "any",
                             "all",
                             "prod",
                             "var",
                             "std",
                             "var_mean",
                             "std_mean",
                             "norm",
                             "linalg_vector_norm",
                             "cumsum",
                             "logsumexp",
                             "cat",
                             "stack",
                             "copy_",
                             "clone",
                             "contiguous",
                             "_to_copy",
                             "fill_",
                             "zero_",
                             "zeros",
                             "ones",
                             "full",
                             "zeros_like",
                             "ones_like",
                             "full_like",
                             "arange",
                             "eye",
                             "repeat",
                             "flip",
                             "roll",
                             "tril",
                             "triu",
                             "constant_pad_nd",
                             "native_dropout",
                             "native_dropout_backward",
                             "bernoulli_",
                             "uniform_",
                             "normal_",
                             "random_",
                             "nll_loss_forward",
                             "nll_loss_backward",
                             "sort",
                             "argsort",
                             "topk",
                             "histc",
                             "scatter",
                             "scatter_",
                             "scatter_add",
                             "scatter_add_",
                             "index_add_",
                             "index_put_",
                             "_index_put_impl_",
                             "_unsafe_index_put",
                             "masked_fill_",
                             "split_with_sizes_copy",
                             "_chunk_cat",
                             "_thnn_fused_lstm_cell",
                             "_thnn_fused_lstm_cell_backward_impl",
                             "_thnn_fused_gru_cell",
                             "_thnn_fused_gru_cell_backward",
                             "_fused_adamw_",
                             "_fused_adam_",
                             "_fused_sgd_",
                             "_amp_foreach_non_finite_check_and_unscale_",
                             "_amp_update_scale_",
                             "max_pool2d_with_indices",
                             "max_pool2d_with_indices_backward",
                             "avg_pool2d",
                             "avg_pool2d_backward",
                             "_adaptive_avg_pool2d",
                             "_adaptive_avg_pool2d_backward",
                             "upsample_nearest2d",
                             "upsample_bilinear2d",
                             "mse_loss",
                             "glu",
                             "glu_backward"}) {
      t.emplace(name, kVector);
    }
    return t;
  }();
  return table;
}

Kind kind_of(const OperatorDesc& op) {
  const auto it = kinds().find(op.name);
  if (it != kinds().end()) return it->second;
  if (op.pointwise || op.name.starts_with("_foreach_")) return Kind::kVector;
  return Kind::kUnknown;
}

double bytes_of(std::span<const TensorDesc> tensors) {
  double bytes = 0;
  for (const TensorDesc& tensor : tensors) bytes += static_cast<double>(tensor.bytes);
  return bytes;
}

double size_from_end(const TensorDesc& tensor, size_t i) {
  return i < tensor.sizes.size() ? static_cast<double>(tensor.sizes[tensor.sizes.size() - 1 - i]) : 1.0;
}

double item_bytes(const TensorDesc& tensor) {
  const int64_t n = tensor.numel();
  return n == 0 ? 1.0 : static_cast<double>(tensor.bytes) / static_cast<double>(n);
}

struct HeadAndLength {
  double head, keys;
};

// Of attention's keys. Of packed sequences (TND) all tokens count as one: an upper bound.
HeadAndLength head_and_length(const OperatorDesc& op, const TensorDesc& k) {
  const double last = size_from_end(k, 0);
  const double per_head = last / static_cast<double>(std::max<int64_t>(1, op.heads));
  if (op.layout == "BSH") return {per_head, size_from_end(k, 1)};
  if (op.layout == "SBH") return {per_head, size_from_end(k, 2)};
  if (op.layout == "BSND" || op.layout == "TND") return {last, size_from_end(k, 2)};
  return {last, size_from_end(k, 1)};
}

struct Tile {
  double m, n, rate;
};
// The smaller tile reads each operand more often (EST).
constexpr std::array kTiles = {Tile{128, 256, 1.0}, Tile{256, 128, 1.0}, Tile{128, 128, 0.85}};

// Share of a product that a fused collective hides behind it: a pipeline of four pieces (EST).
constexpr double kHiddenInFused = 0.75;
// A norm or rotary embedding of small kernels over the fused one: 138.7 against 39.9 us (cann-recipes, measured).
constexpr double kComposedFactor = 3.5;
// Fixed costs of a copy between host and card (EST, an aclrtMemcpy).
constexpr double kHostCopyUs = 10;

// One kernel for the products of all groups; `weight_grad` is the sum over each group's rows of x^T gradient.
Cost grouped_products(const CostModel& model, const OperatorDesc& op, bool weight_grad) {
  const TensorDesc& x = op.inputs[0];
  const TensorDesc& groups = weight_grad ? op.outputs[0] : op.inputs[1];
  const double count = std::max(1.0, size_from_end(groups, 2));
  const double k = size_from_end(groups, 1), n = size_from_end(groups, 0);
  const double rows = static_cast<double>(x.numel()) / std::max(1.0, size_from_end(x, 0));
  const double each = rows / count;
  return {.engine = Engine::kCube,
          .us = weight_grad ? model.matmul_us(k, n, each, count, x.dtype) : model.matmul_us(each, n, k, count, x.dtype),
          .flops = 2 * rows * n * k,
          .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
}

// The operators of which PyTorch composes a layer: one product for all inputs, then one and a cell for each of T steps.
// The backward pass has two products for each of these.
Cost lstm_layer(const CostModel& model, const OperatorDesc& op, bool backward) {
  const TensorDesc &x = op.inputs[0], &recurrent = op.inputs[2];
  const double steps = size_from_end(x, 2), batch = size_from_end(x, 1), in = size_from_end(x, 0);
  const double gates = size_from_end(recurrent, 1), hidden = size_from_end(recurrent, 0);
  const double products = backward ? 2 : 1;
  // A cell reads both parts of the gates and the state, and writes gates and two states; so does its backward.
  const double cell = (3 * gates + 3 * hidden) * batch * item_bytes(x);
  return {.engine = Engine::kCube,
          .us = products * (model.matmul_us(steps * batch, gates, in, 1, x.dtype) +
                            steps * model.matmul_us(batch, gates, hidden, 1, x.dtype)) +
                steps * model.vector_us(cell),
          .flops = products * 2 * steps * batch * gates * (in + hidden),
          .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
}

}  // namespace

const char* name_of(Engine engine) {
  constexpr std::array kNames = {"none", "cube", "vector", "copy", "collective"};
  return kNames[static_cast<size_t>(engine)];
}

double CostModel::peak(Dtype dtype) const {
  const double fp16 = soc_.peak_fp16_tflops * 1e6;
  switch (dtype) {
    case Dtype::kFloat16:
      return fp16;
    case Dtype::kBFloat16:
      return soc_.bf16_cube ? fp16 : fp16 * soc_.fp32_ratio;
    case Dtype::kInt8:
      return fp16 * soc_.int8_ratio;
    case Dtype::kFloat32:
    case Dtype::kOther:
      return fp16 * soc_.fp32_ratio;
  }
  return fp16;
}

double CostModel::matmul_us(double m, double n, double k, double batch, Dtype dtype) const {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return 0;
  const double depth = std::min(soc_.matmul_cap, soc_.matmul_peak * k / (k + soc_.matmul_k_half));
  double filled = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch;
    const double waves = std::ceil(tiles / soc_.cube_cores);
    filled = std::max(filled, tile.rate * m * n * batch / (waves * soc_.cube_cores * tile.m * tile.n));
  }
  const double arithmetic = 2 * m * n * k * batch / (peak(dtype) * depth * filled);
  const double item = dtype == Dtype::kFloat32 || dtype == Dtype::kOther ? 4 : dtype == Dtype::kInt8 ? 1 : 2;
  const double smaller = std::min(m * k, n * k) * item;
  const double again = std::max(0.0, std::ceil(smaller / static_cast<double>(soc_.l2_bytes)) - 1);
  const double bytes = ((m * k + n * k + m * n) * item + smaller * again) * batch;
  return std::max(arithmetic, bytes / (soc_.hbm_gbps * soc_.hbm_efficiency * 1e3)) + soc_.cube_us;
}

double CostModel::vector_us(double bytes, double kernels) const {
  return bytes / (soc_.hbm_gbps * soc_.hbm_efficiency * 1e3) + kernels * soc_.vector_us;
}

double CostModel::host_to_device_us(double bytes) const { return bytes / (soc_.h2d_gbps * 1e3) + kHostCopyUs; }
double CostModel::device_to_host_us(double bytes) const { return bytes / (soc_.d2h_gbps * 1e3) + kHostCopyUs; }

Cost CostModel::products(const OperatorDesc& op, size_t first, bool linear_weight) const {
  const TensorDesc& a = op.inputs[first];
  const TensorDesc& b = op.inputs[first + 1];
  const double k = size_from_end(a, 0);
  const double n = b.sizes.size() < 2 ? 1 : linear_weight ? size_from_end(b, 1) : size_from_end(b, 0);
  double m = size_from_end(a, 1), batch = 1;
  const double rows = k == 0 ? 0 : static_cast<double>(a.numel()) / k;
  // A weight without batch dimensions multiplies all rows in one product.
  b.sizes.size() <= 2 ? m = rows : batch = m == 0 ? 0 : rows / m;
  return {.engine = Engine::kCube,
          .us = matmul_us(m, n, k, batch, a.dtype),
          .flops = 2 * m * n * k * batch,
          .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
}

Cost CostModel::convolution(const OperatorDesc& op, bool backward) const {
  const TensorDesc& weight = op.inputs[backward ? 2 : 1];
  const TensorDesc& input = op.inputs[backward ? 1 : 0];
  const TensorDesc& output = backward ? op.inputs[0] : op.outputs[0];
  const double filters = static_cast<double>(weight.sizes[0]);
  const double depth = filters == 0 ? 0 : static_cast<double>(weight.numel()) / filters;
  const bool transposed = output.sizes.size() > 1 && output.sizes[1] != weight.sizes[0];
  const double rows = static_cast<double>((transposed ? input : output).numel()) / std::max(1.0, filters);
  Cost cost{.engine = Engine::kCube, .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
  // Backward: one such product for the input's gradient, one for the weight's.
  const double times = backward ? static_cast<double>(std::min<size_t>(2, op.outputs.size())) : 1;
  cost.us = times * matmul_us(rows, filters, depth, 1, input.dtype);
  cost.flops = times * 2 * rows * filters * depth;
  return cost;
}

Cost CostModel::attention(const OperatorDesc& op, size_t query, bool backward) const {
  const TensorDesc& q = op.inputs[query];
  const TensorDesc& k = op.inputs[query + 1];
  const auto [head, keys] = head_and_length(op, k);
  Cost cost{.engine = Engine::kCube, .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
  cost.flops = 4.0 * static_cast<double>(q.numel()) * keys * op.density * (backward ? 2.5 : 1.0);
  // Published at 8192 tokens and heads of 128 (H11); the shapes of both factors are estimates.
  const double by_head = std::min(1.25, 1.5 * head / (head + 64));
  const double by_length = (keys / (keys + 512)) / (8192.0 / (8192 + 512));
  const double share = (backward ? soc_.attention_backward : soc_.attention_forward) * by_head * by_length;
  const double arithmetic = share == 0 ? 0 : cost.flops / (peak(q.dtype) * share);
  const double memory = cost.bytes / (soc_.hbm_gbps * soc_.hbm_efficiency * 1e3);
  cost.us = std::max(arithmetic, memory) + soc_.cube_us * (backward ? 2 : 1);
  return cost;
}

Cost CostModel::product_with_collective(const OperatorDesc& op, bool gather) const {
  const TensorDesc& x = op.inputs[0];
  const double rows = static_cast<double>(x.numel()) / std::max(1.0, size_from_end(x, 0)) * (gather ? op.world : 1);
  const double k = size_from_end(x, 0), n = size_from_end(op.inputs[1], 0);
  Cost cost{.engine = Engine::kCube, .bytes = bytes_of(op.inputs) + bytes_of(op.outputs)};
  cost.flops = 2 * rows * k * n;
  const double product = matmul_us(rows, n, k, 1, x.dtype);
  const GroupShape group{.ranks = op.world, .local = op.world, .domains = 1, .dies = false};
  const double moved = topology_.collective_us(gather ? Collective::kAllGather : Collective::kReduceScatter,
                                               rows * (gather ? k : n) * item_bytes(x), group);
  const double transfer = op.name == "npu_mm_all_reduce_base" ? 2 * moved : moved;
  cost.us = std::max(product, transfer) + (1 - kHiddenInFused) * std::min(product, transfer);
  return cost;
}

Cost CostModel::cost(const OperatorDesc& op) const {
  const Kind kind = kind_of(op);
  const size_t tensors = op.inputs.size();
  switch (kind) {
    case Kind::kFree:
      return {.engine = Engine::kNone};
    case Kind::kMatmul:
      if (tensors >= 2) return products(op, 0, false);
      break;
    case Kind::kAddMatmul:
      if (tensors >= 3) return products(op, 1, false);
      break;
    case Kind::kLinear:
      if (tensors >= 2) return products(op, 0, true);
      break;
    case Kind::kGroupedMatmul:
      if (tensors >= 2 && op.inputs[1].sizes.size() == 3) return grouped_products(*this, op, false);
      break;
    case Kind::kGroupedMatmulWeightGrad:
      if (tensors >= 2 && !op.outputs.empty()) return grouped_products(*this, op, true);
      break;
    case Kind::kConvolution:
      if (tensors >= 2 && !op.outputs.empty()) return convolution(op, false);
      break;
    case Kind::kConvolutionBackward:
      if (tensors >= 3) return convolution(op, true);
      break;
    case Kind::kAttention:
      if (tensors >= 3) return attention(op, 0, false);
      break;
    case Kind::kAttentionBackward:
      // npu_fusion_attention_grad takes the gradient fourth, PyTorch's take it first.
      if (tensors >= 4) return attention(op, op.name.starts_with("npu_") ? 0 : 1, true);
      break;
    case Kind::kGatherMatmul:
    case Kind::kMatmulScatter:
      if (tensors >= 2) return product_with_collective(op, kind == Kind::kGatherMatmul);
      break;
    case Kind::kLstmLayer:
    case Kind::kLstmLayerBackward:
      if (tensors >= 3) return lstm_layer(*this, op, kind == Kind::kLstmLayerBackward);
      break;
    default:
      break;
  }
  Cost cost{.modelled = kind != Kind::kUnknown};
  cost.bytes = bytes_of(op.inputs) + bytes_of(op.outputs);
  if (kind == Kind::kLookup && tensors > 0) {
    cost.bytes += bytes_of(op.outputs) - static_cast<double>(op.inputs[0].bytes);
  }
  cost.us = kind == Kind::kComposed ? kComposedFactor * vector_us(cost.bytes) : vector_us(cost.bytes);
  return cost;
}

}  // namespace cann::sim
