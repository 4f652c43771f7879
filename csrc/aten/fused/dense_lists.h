#pragma once
// Lists of tensors as raw memory, for kernels that walk whole lists instead of calling an operator for each tensor.
//
// A list operator has one or more operands, each a list; tensors with the same index belong together. Lists are
// *regular* when every tensor is a dense npu tensor of one card and one type that kernels have (float32, bfloat16,
// float16), fills its memory without gaps or overlap, carries no lazy bits, and has the sizes and strides of its
// counterpart in the first list, with which it shares either all memory or none. Anything else is left to the
// operator's general kernel, which also raises the errors.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>

#include "aten/parallel.h"
#include "kernels/element.h"
#include "runtime/thread_state.h"

namespace cann::aten {

class DenseLists {
 public:
  static constexpr size_t kMaxOperands = 6;

  DenseLists() { ensure_thread_ready(); }

  // Adds the next operand. A written one is checked against the host's memory (raises OutOfMemoryError).
  void add(at::TensorList tensors, bool written);

  // Whether every list added so far is regular. An empty list is not.
  bool regular() const { return regular_; }

  // The value of a tensor without dimensions, of the lists' type and card; false for any other.
  bool read_number(const at::Tensor& number, float& value) const;

  size_t size() const { return numel_.size(); }
  kernels::Element element() const { return element_; }
  c10::DeviceIndex device() const { return device_; }
  int64_t numel(size_t tensor) const { return numel_[tensor]; }
  int64_t total() const { return total_; }
  int64_t item_size() const { return item_size_; }
  // Address of element `offset` of a tensor.
  void* at(size_t operand, size_t tensor, int64_t offset = 0) const {
    return data_[operand][tensor] + offset * item_size_;
  }

  // Calls body(tensor, begin, end) for ranges that together are every element once, on several threads when there is
  // enough to do. Ranges begin at multiples of kBlock, so that results per block do not depend on the threads.
  static constexpr int64_t kBlock = 4096;
  template <class F>
  void for_each_range(const F& body) const {
    if (total_ < at::internal::GRAIN_SIZE || at::get_num_threads() == 1 || writes_overlap()) {
      for (size_t i = 0; i < size(); ++i) body(i, int64_t{0}, numel_[i]);
      return;
    }
    const int64_t blocks = block_starts().back();
    parallel_for(0, blocks, at::internal::GRAIN_SIZE / kBlock, [&](int64_t begin, int64_t end) {
      const auto& starts = block_starts_;
      size_t i = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
      while (begin < end) {
        const int64_t stop = std::min(end, starts[i + 1]);
        if (stop > begin) {
          body(i, (begin - starts[i]) * kBlock, std::min(numel_[i], (stop - starts[i]) * kBlock));
        }
        begin = stop, ++i;
      }
    });
  }

  // Blocks of all tensors before each tensor, and of all at the end.
  const c10::SmallVector<int64_t, 32>& block_starts() const;

 private:
  bool take(const at::Tensor& tensor, const at::TensorImpl* model, bool written);
  // Whether a range that is written shares memory with another: threads would then see each other's results.
  bool writes_overlap() const;

  bool regular_ = true;
  kernels::Element element_ = kernels::Element::kFloat32;
  int64_t item_size_ = 0;
  c10::DeviceIndex device_ = -1;
  int64_t total_ = 0;
  size_t operands_ = 0;
  at::TensorList first_;
  std::array<c10::SmallVector<char*, 32>, kMaxOperands> data_;
  std::array<bool, kMaxOperands> written_{};
  c10::SmallVector<int64_t, 32> numel_;
  mutable c10::SmallVector<int64_t, 32> block_starts_;
};

}  // namespace cann::aten
