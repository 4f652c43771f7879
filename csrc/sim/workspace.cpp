#include "sim/workspace.h"

#include <string_view>
#include <unordered_map>

namespace cann::sim {
namespace {

enum class Kind : uint8_t { kProduct, kAttention, kAttentionBackward, kSort };

const std::unordered_map<std::string_view, Kind>& kinds() {
  using enum Kind;
  static const std::unordered_map<std::string_view, Kind> table{
      {"mm", kProduct},
      {"bmm", kProduct},
      {"addmm", kProduct},
      {"baddbmm", kProduct},
      {"linear", kProduct},
      {"npu_linear", kProduct},
      {"npu_grouped_matmul", kProduct},
      {"convolution", kProduct},
      {"convolution_backward", kProduct},
      {"npu_all_gather_base_mm", kProduct},
      {"npu_mm_reduce_scatter_base", kProduct},
      {"npu_mm_all_reduce_base", kProduct},
      {"_scaled_dot_product_fused_attention_overrideable", kAttention},
      {"npu_fusion_attention", kAttention},
      {"npu_fusion_attention_v2", kAttention},
      {"npu_fusion_attention_v3", kAttention},
      {"_scaled_dot_product_fused_attention_overrideable_backward", kAttentionBackward},
      {"npu_fusion_attention_grad", kAttentionBackward},
      {"npu_fusion_attention_grad_v2", kAttentionBackward},
      {"npu_fusion_attention_grad_v3", kAttentionBackward},
      {"sort", kSort},
      {"argsort", kSort},
      {"topk", kSort},
  };
  return table;
}

// WORK_SPACE_RESERVE_SIZE of CANN's fused operators (ops-transformer, op_host tiling), for the library underneath.
constexpr int64_t kReserve = int64_t{16} << 20;
// A block of scores in float32: 128 queries by 128 keys (ditto).
constexpr int64_t kBlock = 128 * 128 * 4;
// A tile of a product's partial sums in float32.
constexpr int64_t kTile = 128 * 256 * 4;

int64_t elements(std::span<const TensorDesc> tensors) {
  int64_t n = 0;
  for (const TensorDesc& tensor : tensors) n += tensor.numel();
  return n;
}

}  // namespace

Workspace workspace_of(const OperatorDesc& op, const Soc& soc) {
  const auto found = kinds().find(op.name);
  if (found == kinds().end()) return {};
  const auto cores = static_cast<int64_t>(soc.vector_cores);
  switch (found->second) {
    case Kind::kProduct: {
      // EST one tile of partial sums for each cube core, where the depth is split.
      const int64_t sums = static_cast<int64_t>(soc.cube_cores) * kTile;
      return {kReserve, 0, kReserve + sums};
    }
    case Kind::kAttention: {
      // Per vector core nRatio blocks of scores, 8 in the usual tiling (1 to 64), and one of the result.
      return {kReserve + cores * 9 * kBlock, kReserve + cores * 2 * kBlock, kReserve + cores * 65 * kBlock};
    }
    case Kind::kAttentionBackward: {
      // dqWorkspaceLen, dkWorkspaceLen and dvWorkspaceLen: the gradients in float32; and two blocks per core, twice.
      const int64_t gradients = elements(op.outputs) * 4;
      return {kReserve + gradients + cores * 4 * kBlock, kReserve + gradients,
              kReserve + gradients + cores * 65 * kBlock};
    }
    case Kind::kSort: {
      // EST values and 32-bit positions, once or in both halves of a merge.
      const int64_t once = op.inputs.empty() ? 0 : op.inputs[0].bytes + op.inputs[0].numel() * 4;
      return {kReserve + 2 * once, once, kReserve + 2 * once};
    }
  }
  return {};
}

}  // namespace cann::sim
