#include "aten/fused/dense_lists.h"

#include <optional>
#include <vector>

#include "aten/element.h"
#include "aten/write_guard.h"
#include "runtime/device.h"
#include "runtime/reach.h"

namespace cann::aten {
namespace {

bool same_geometry(const at::TensorImpl& a, const at::TensorImpl& b) {
  return a.sizes() == b.sizes() && (a.is_contiguous() ? b.is_contiguous() : a.strides() == b.strides());
}

// Counterparts may be the same memory or apart; the general kernel raises the error for anything between.
bool partly_overlap(const char* a, const char* b, int64_t bytes) { return a != b && (a < b ? b - a : a - b) < bytes; }

}  // namespace

void DenseLists::add(at::TensorList tensors, bool written) {
  if (!regular_) return;
  if (operands_ == 0) first_ = tensors;
  if (operands_ == kMaxOperands || tensors.empty() || tensors.size() != first_.size()) {
    regular_ = false;
    return;
  }
  data_[operands_].reserve(tensors.size());
  for (size_t i = 0; i < tensors.size() && regular_; ++i) {
    regular_ = take(tensors[i], operands_ == 0 ? nullptr : first_[i].unsafeGetTensorImpl(), written);
  }
  written_[operands_++] = written;
}

bool DenseLists::take(const at::Tensor& tensor, const at::TensorImpl* model, bool written) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || impl->device_type() != kNPU) return false;
  if (!is_raw_memory(*impl) || !impl->is_non_overlapping_and_dense()) return false;
  if (item_size_ == 0) {
    const auto element = element_of(tensor.scalar_type());
    if (!element.has_value()) return false;
    element_ = *element;
    item_size_ = static_cast<int64_t>(impl->itemsize());
    device_ = impl->device().index();
  } else if (tensor.scalar_type() != first_[0].scalar_type() || impl->device().index() != device_) {
    return false;
  }
  if (model != nullptr && !same_geometry(*model, *impl)) return false;
  if (written) check_host_can_write(tensor);
  void* data = written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
  data_[operands_].push_back(static_cast<char*>(data));
  if (model != nullptr &&
      partly_overlap(data_[0][data_[operands_].size() - 1], data_[operands_].back(), impl->numel() * item_size_)) {
    return false;
  }
  if (model == nullptr) {
    numel_.push_back(impl->numel());
    total_ += impl->numel();
  }
  return true;
}

bool DenseLists::read_number(const at::Tensor& number, float& value) const {
  if (!number.defined() || number.dim() != 0 || number.device() != first_[0].device() ||
      number.scalar_type() != first_[0].scalar_type() || number.is_neg()) {
    return false;
  }
  switch (number.scalar_type()) {
    case at::kFloat:
      value = *number.const_data_ptr<float>();
      return true;
    case at::kBFloat16:
      value = *number.const_data_ptr<at::BFloat16>();
      return true;
    case at::kHalf:
      value = *number.const_data_ptr<at::Half>();
      return true;
    default:
      return false;
  }
}

const c10::SmallVector<int64_t, 32>& DenseLists::block_starts() const {
  if (block_starts_.empty()) {
    block_starts_.push_back(0);
    for (const int64_t numel : numel_) block_starts_.push_back(block_starts_.back() + (numel + kBlock - 1) / kBlock);
  }
  return block_starts_;
}

bool DenseLists::writes_overlap() const {
  struct Extent {
    const char *begin, *end;
    bool written;
    size_t tensor;
  };
  std::vector<Extent> extents;
  extents.reserve(operands_ * size());
  for (size_t operand = 0; operand < operands_; ++operand) {
    for (size_t i = 0; i < size(); ++i) {
      const char* begin = data_[operand][i];
      if (numel_[i] > 0) extents.push_back({begin, begin + numel_[i] * item_size_, written_[operand], i});
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.written > b.written;
  });
  const char *end = nullptr, *written_end = nullptr;
  const Extent* last = nullptr;
  for (const Extent& extent : extents) {
    // Counterparts in exactly the same place, as in a.add_(a), are read and written by the same thread.
    const bool same = last != nullptr && last->begin == extent.begin && last->tensor == extent.tensor;
    if (!same && (extent.begin < written_end || (extent.written && extent.begin < end))) return true;
    end = std::max(end, extent.end);
    if (extent.written) written_end = std::max(written_end, extent.end);
    last = &extent;
  }
  return false;
}

}  // namespace cann::aten
