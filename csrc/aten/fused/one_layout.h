#pragma once
// ATen's fused optimizers walk the memory of a parameter, its gradient and its state in step, from their first elements
// on. They do not ask whether these are laid out alike, and pair the wrong elements where they are not: a gradient that
// the script made itself, or the state of a checkpoint from before the model became channels_last.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <tuple>
#include <utility>
#include <vector>

#include "aten/fused/native_kernel.h"
#include "aten/write_guard.h"

namespace cann::aten {

// Lists of contiguous tensors: those given, or copies of them.
class ContiguousCopies {
 public:
  // `lent` tensors are read, and written only for the caller's convenience, as gradients are when they are unscaled:
  // they may be expanded. In all others, elements that share memory are an error.
  std::vector<at::Tensor> of(at::TensorList tensors, bool lent) {
    std::vector<at::Tensor> list;
    list.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      list.push_back(tensor.layout() == at::kStrided ? tensor.contiguous() : tensor);
      if (list.back().is_same(tensor)) continue;
      const bool overlaps = at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
      if (!lent) at::assert_no_internal_overlap(tensor);
      if (!overlaps) copied_.emplace_back(tensor, list.back());
    }
    return list;
  }
  template <class T>
  const T& of(const T& other, bool) {
    return other;
  }

  // Gives the originals the values of their copies.
  void write_back() {
    for (auto& [original, copy] : copied_) {
      original.copy_(copy);
      bump_versions(at::TensorList(original));
    }
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copied_;
};

// Whether tensors are laid out as their counterparts in `params`, without gaps. Raises if one has another shape: the
// kernels would walk past its end.
inline bool laid_out_as(at::TensorList params, at::TensorList list) {
  TORCH_CHECK(list.empty() || list.size() == params.size(), "a fused optimizer got ", params.size(),
              " parameters, but ", list.size(), " gradients or states");
  for (size_t i = 0; i < list.size(); ++i) {
    const at::Tensor &param = params[i], &other = list[i];
    if (param.layout() != at::kStrided || other.layout() != at::kStrided) continue;  // ATen's to refuse
    TORCH_CHECK(other.sizes() == param.sizes(), "a fused optimizer got a parameter of shape ", param.sizes(),
                ", but a gradient or a state of shape ", other.sizes(), " for it");
    if (!other.is_non_overlapping_and_dense()) return false;
    if (other.strides() != param.strides() && !(other.is_contiguous() && param.is_contiguous())) return false;
  }
  return true;
}

// The general kernel of a fused optimizer, on contiguous copies where it needs them. The parameters and the `kLists`
// lists after them are walked in step.
template <class Op, size_t kLists, class Schema = typename Op::schema>
struct OnOneLayout;

template <class Op, size_t kLists, class... A>
struct OnOneLayout<Op, kLists, void(at::TensorList, A...)> {
  static void call(at::TensorList params, A... args) {
    const auto given = std::tie(args...);
    const bool one_layout = [&]<size_t... I>(std::index_sequence<I...>) {
      return laid_out_as(params, params) && (laid_out_as(params, std::get<I>(given)) && ...);
    }
    (std::make_index_sequence<kLists>());
    if (C10_LIKELY(one_layout)) return general<Op>(params, args...);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ContiguousCopies copies;
    [&]<size_t... I>(std::index_sequence<I...>) {
      general<Op>(copies.of(params, false), copies.of(std::get<I>(given), /*lent=*/I == 0)...);
    }
    (std::index_sequence_for<A...>());
    copies.write_back();
  }
};

}  // namespace cann::aten
