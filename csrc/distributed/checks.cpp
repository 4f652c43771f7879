#include "distributed/checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/host_alias.h"
#include "sim/server.h"

namespace cann::hccl {
namespace {

std::string suffix(ErrCode code) { return error_suffix(ErrModule::DIST, code); }

bool is_contiguous(const at::Tensor& tensor) { return tensor.is_contiguous(tensor.suggest_memory_format()); }

// torch_npu's number of the Ascend910_95, from which on HCCL reduces 64-bit floats and unsigned integers.
constexpr int kFirstWith64Bits = 260;

// HCCL's reductions. Bool and uint8 are reduced as well, as torch_npu does by way of int32.
bool can_reduce(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kByte:
    case at::kBool:
      return true;
    case at::kDouble:
    case at::kUInt64:
      return sim::Server::get().soc().version >= kFirstWith64Bits;
    default:
      return false;
  }
}

// "at::kDouble": the constant of ATen that names the dtype, as torch_npu prints it.
std::string constant_name(at::ScalarType dtype) { return std::string("at::k") + c10::toString(dtype); }

double premultiply_factor(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr,
              "ReduceOp.PREMUL_SUM needs a factor: make it with "
              "torch.distributed._make_nccl_premul_sum().",
              suffix(ErrCode::PARAM));
  const at::Tensor& tensor = supplement->tensor_factor;
  return tensor.defined() ? host_alias(tensor).item<double>() : supplement->double_factor;
}

}  // namespace

uint8_t layout_of(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? 0 : static_cast<uint8_t>(tensor.suggest_memory_format());
}

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.defined() && tensor.device().type() == kNPU && tensor.layout() == at::kStrided,
      "Tensors must be NPU and dense, but got ",
      tensor.defined() ? c10::str("a ", tensor.layout(), " tensor on ", tensor.device()) : "an undefined tensor",
      ". Move it to the card first, or use a process group made with \"cpu:gloo,npu:hccl\" for both kinds.",
      suffix(ErrCode::TYPE));
  TORCH_CHECK(is_contiguous(tensor), "Tensors must be contiguous, but got sizes ", tensor.sizes(), " with strides ",
              tensor.strides(), ". Pass tensor.contiguous().", suffix(ErrCode::TYPE));
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(),
              "Tensors must hold their values: this one is a lazy conjugate or negation. Pass "
              "tensor.resolve_conj().resolve_neg().",
              suffix(ErrCode::TYPE));
}

void check_single(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "Tensor list must hold exactly one tensor, but has ", tensors.size(), ".",
              suffix(ErrCode::PARAM));
  check_tensor(tensors[0]);
}

void check_matches(const at::Tensor& tensor, const at::Tensor& other) {
  TORCH_CHECK(other.scalar_type() == tensor.scalar_type(), "Tensors must have identical type, but got ",
              tensor.scalar_type(), " and ", other.scalar_type(), ".", suffix(ErrCode::TYPE));
  TORCH_CHECK(other.device() == tensor.device(), "Tensors must be on same NPU device, but got ", tensor.device(),
              " and ", other.device(), ".", suffix(ErrCode::PARAM));
  TORCH_CHECK(layout_of(tensor) == layout_of(other), "Tensors must have identical strides, but got memory formats ",
              tensor.suggest_memory_format(), " and ", other.suggest_memory_format(), ".", suffix(ErrCode::PARAM));
}

void check_list(const std::vector<at::Tensor>& tensors, bool same_size) {
  TORCH_CHECK(!tensors.empty(), "Tensor list must be nonempty", suffix(ErrCode::PARAM));
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    check_matches(tensors[0], tensor);
    TORCH_CHECK(!same_size || tensor.sizes() == tensors[0].sizes(), "Tensors must have identical size, but got ",
                tensors[0].sizes(), " and ", tensor.sizes(), ".", suffix(ErrCode::PARAM));
  }
}

void check_same_numel(const at::Tensor& tensor, const std::vector<at::Tensor>& list) {
  for (const at::Tensor& other : list) {
    check_matches(tensor, other);
    TORCH_CHECK(other.numel() == tensor.numel(), "output tensor must have the same numel as input tensor, but got ",
                other.numel(), " and ", tensor.numel(), ".", suffix(ErrCode::PARAM));
  }
}

void check_splits(const std::vector<int64_t>& splits, const at::Tensor& tensor, int ranks) {
  const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK(rows % ranks == 0, "Tensor's dim 0 does not divide equally across group size: ", rows, " rows, ", ranks,
                " ranks.", suffix(ErrCode::PARAM));
    return;
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(ranks),
              "Number of tensor splits not equal to group size: ", splits.size(), " splits, ", ranks, " ranks.",
              suffix(ErrCode::TYPE));
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "Split sizes must not be negative, but got ", split, ".", suffix(ErrCode::VALUE));
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK(sum == rows, "Split sizes doesn't match total dim 0 size: they sum up to ", sum, ", dim 0 has ", rows,
              ".", suffix(ErrCode::TYPE));
}

void check_root(int64_t root, int ranks, const char* what) {
  TORCH_CHECK(root >= 0 && root < ranks, "Invalid ", what, " rank ", root, ": the group has ranks 0 to ", ranks - 1,
              ".", suffix(ErrCode::VALUE));
}

namespace {

struct KnownReduction {
  c10d::ReduceOp::RedOpType op;
  const char* name;
  Reduction reduction;  // kNone: refused, as HCCL does
};

constexpr KnownReduction kReductions[] = {
    {c10d::ReduceOp::SUM, "SUM", Reduction::kSum},
    {c10d::ReduceOp::AVG, "AVG", Reduction::kAverage},
    {c10d::ReduceOp::PRODUCT, "PRODUCT", Reduction::kProduct},
    {c10d::ReduceOp::MIN, "MIN", Reduction::kMin},
    {c10d::ReduceOp::MAX, "MAX", Reduction::kMax},
    {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", Reduction::kPremultipliedSum},
    {c10d::ReduceOp::BAND, "BAND", Reduction::kNone},
    {c10d::ReduceOp::BOR, "BOR", Reduction::kNone},
    {c10d::ReduceOp::BXOR, "BXOR", Reduction::kNone},
};

}  // namespace

Reduction checked_reduction(const c10d::ReduceOp& op, at::ScalarType dtype, const char* function, double* factor) {
  *factor = 1.0;
  const auto* known = std::find_if(std::begin(kReductions), std::end(kReductions),
                                   [&](const KnownReduction& row) { return row.op == op.op_; });
  const bool listed = known != std::end(kReductions);
  TORCH_CHECK(listed && known->reduction != Reduction::kNone, "Cannot use ReduceOp.", listed ? known->name : "UNUSED",
              " with HCCL", suffix(ErrCode::NOT_SUPPORT));
  const Reduction reduction = known->reduction;
  TORCH_CHECK(can_reduce(dtype), "HCCL ", function, ": Unsupported data type ", constant_name(dtype),
              suffix(ErrCode::NOT_SUPPORT));
  if (reduction == Reduction::kPremultipliedSum) {
    TORCH_CHECK(at::isFloatingType(dtype), "HCCL ", function,
                ": ReduceOp.PREMUL_SUM needs a floating point tensor, "
                "but got ",
                constant_name(dtype), suffix(ErrCode::NOT_SUPPORT));
    *factor = premultiply_factor(op);
  }
  TORCH_CHECK(reduction != Reduction::kAverage || dtype != at::kBool, "HCCL ", function,
              ": ReduceOp.AVG has no meaning for ", constant_name(dtype), suffix(ErrCode::NOT_SUPPORT));
  return reduction;
}

}  // namespace cann::hccl
