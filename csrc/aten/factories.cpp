// Making uninitialised tensors: empty.memory_format and empty_strided. Everything else that creates tensors comes here,
// but for a window that has a kernel of its own.

#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>

#include "aten/factories.h"
#include "aten/register.h"
#include "runtime/caching_allocator.h"
#include "runtime/errors.h"
#include "runtime/storage.h"
#include "runtime/tensor_impl_access.h"
#include "runtime/thread_state.h"

namespace cann::aten {
namespace {

c10::Device resolve(std::optional<c10::Device> device) {
  ensure_thread_ready();
  return c10::Device(kNPU, checked_index(device.has_value() ? device->index() : -1));
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned, but pin_memory=True was asked for npu",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided,
                              "npu cannot make an empty tensor of layout ", *layout,
                              error_suffix(ErrModule::PTA, ErrCode::NOT_SUPPORT));
}

constexpr c10::DispatchKeySet kCpuKeys(c10::DispatchKey::CPU);

at::Tensor to_npu(at::TensorBase host, c10::Device device) {
  auto* impl = host.unsafeGetTensorImpl();
  auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl->unsafe_storage().unsafeGetStorageImpl());
  detail::replace_storage(impl, c10::Storage(wrap_host_storage(std::move(storage), device)));
  detail::retag(impl, device);
  at::Tensor tensor(std::move(host));
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::Device npu = resolve(device);
  return to_npu(at::detail::empty_generic(size, caching_allocator::host_view_allocator(npu.index()), kCpuKeys,
                                          c10::dtype_or_default(dtype), memory_format),
                npu);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::Device npu = resolve(device);
  return to_npu(at::detail::empty_strided_generic(size, stride, caching_allocator::host_view_allocator(npu.index()),
                                                  kCpuKeys, c10::dtype_or_default(dtype)),
                npu);
}

// ATen fills the window with a kernel that only the CPU and CUDA have, so it is made on the host.
at::Tensor kaiser_window_beta(int64_t window_length, bool periodic, double beta, std::optional<at::ScalarType> dtype,
                              std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                              std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::Device npu = resolve(device);
  return at::kaiser_window(window_length, periodic, beta, dtype, layout, at::kCPU, /*pin_memory=*/false).to(npu);
}

at::Tensor kaiser_window_periodic(int64_t window_length, bool periodic, std::optional<at::ScalarType> dtype,
                                  std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                                  std::optional<bool> pin_memory) {
  constexpr double kDefaultBeta = 12.0;  // the default of torch.kaiser_window
  return kaiser_window_beta(window_length, periodic, kDefaultBeta, dtype, layout, device, pin_memory);
}

at::Tensor kaiser_window(int64_t window_length, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return kaiser_window_periodic(window_length, /*periodic=*/true, dtype, layout, device, pin_memory);
}

}  // namespace

at::Tensor empty_contiguous(c10::IntArrayRef size, at::ScalarType dtype, c10::Device device) {
  return to_npu(at::detail::empty_generic(size, caching_allocator::host_view_allocator(device.index()), kCpuKeys, dtype,
                                          at::MemoryFormat::Contiguous),
                device);
}

at::Tensor empty_like_dense(const at::Tensor& model) {
  const c10::Device npu = model.device();
  c10::Allocator* allocator = caching_allocator::host_view_allocator(npu.index());
  return to_npu(
      model.is_contiguous()
          ? at::detail::empty_generic(model.sizes(), allocator, kCpuKeys, model.scalar_type(), std::nullopt)
          : at::detail::empty_strided_generic(model.sizes(), model.strides(), allocator, kCpuKeys, model.scalar_type()),
      npu);
}

void register_factories(torch::Library& aten) {
  aten.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("kaiser_window", TORCH_FN(kaiser_window));
  aten.impl("kaiser_window.periodic", TORCH_FN(kaiser_window_periodic));
  aten.impl("kaiser_window.beta", TORCH_FN(kaiser_window_beta));
}

}  // namespace cann::aten
