// GELU on vectors: ATen's CPU kernel spends its time in an error function of the last bit.

#include "aten/factories.h"
#include "aten/fused/dense_lists.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

at::Tensor gelu(const at::Tensor& self, c10::string_view approximate) {
  DenseLists lists;
  lists.add(self, /*written=*/false);
  if (!lists.regular() || lists.total() < kOwnKernelElements || approximate != "none")
    return general<at::_ops::gelu>(self, approximate);
  at::Tensor result = empty_like_dense(self);
  char* out = static_cast<char*>(result.mutable_data_ptr());
  const auto kernel = kernels::kernels().activation->gelu[static_cast<int>(lists.element())];
  lists.for_each_range([&](size_t, int64_t begin, int64_t end) {
    kernel(out + begin * lists.item_size(), lists.at(0, 0, begin), end - begin);
  });
  return result;
}

at::Tensor gelu_backward(const at::Tensor& grad_output, const at::Tensor& self, c10::string_view approximate) {
  DenseLists lists;
  lists.add(self, /*written=*/false);
  lists.add(grad_output, /*written=*/false);
  if (!lists.regular() || lists.total() < kOwnKernelElements || approximate != "none") {
    return general<at::_ops::gelu_backward>(grad_output, self, approximate);
  }
  at::Tensor result = empty_like_dense(self);
  char* out = static_cast<char*>(result.mutable_data_ptr());
  const auto kernel = kernels::kernels().activation->gelu_backward[static_cast<int>(lists.element())];
  lists.for_each_range([&](size_t, int64_t begin, int64_t end) {
    kernel(out + begin * lists.item_size(), lists.at(1, 0, begin), lists.at(0, 0, begin), end - begin);
  });
  return result;
}

}  // namespace

void register_fused_activations(torch::Library& aten) {
  register_native<at::_ops::gelu, &gelu>(aten);
  register_native<at::_ops::gelu_backward, &gelu_backward>(aten);
}

}  // namespace cann::aten
