// Storage formats, casts and what acts on a tensor's memory.
//
// A format is metadata of the storage (NPUStorageImpl::format): values stay in the order of the strides, but the
// storage has the size that the format has on hardware, so memory counts as there.

#include <ATen/native/Resize.h>

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"
#include "aten/npu/types.h"
#include "runtime/storage.h"

namespace cann::aten::npu {
namespace {

// aclFormat of CANN's ACL (acl_base.h); the ones a tensor can have.
enum Format : int32_t {
  kNCHW = 0,
  kNHWC = 1,
  kND = 2,
  kNC1HWC0 = 3,
  kFractalZ = 4,
  kHWCN = 16,
  kNDHWC = 27,
  kFractalNZ = 29,
  kNCDHW = 30,
  kNDC1HWC0 = 32,
  kFractalZ3D = 33,
  kNC = 35,
  kNCL = 47,
};

// A base format says how the dimensions are called, the others lay them out in blocks.
bool is_base(int64_t format) {
  switch (format) {
    case kNCHW:
    case kNHWC:
    case kND:
    case kHWCN:
    case kNDHWC:
    case kNCDHW:
    case kNC:
    case kNCL:
      return true;
    default:
      return false;
  }
}

int32_t checked_format(int64_t format) {
  CANN_CHECK_OP(is_base(format) || format == kNC1HWC0 || format == kFractalZ || format == kFractalNZ ||
                    format == kNDC1HWC0 || format == kFractalZ3D,
                "npu_format_cast: ", format,
                " is not a format that tensors can have; there are NCHW (0), NHWC (1), "
                "ND (2), NC1HWC0 (3), FRACTAL_Z (4), HWCN (16), NDHWC (27), FRACTAL_NZ (29), NCDHW (30), "
                "NDC1HWC0 (32), FRACTAL_Z_3D (33), NC (35) and NCL (47)");
  return static_cast<int32_t>(format);
}

// What a tensor has that was never cast, by its number of dimensions.
int32_t base_format(int64_t dims) { return dims == 4 ? kNCHW : dims == 3 ? kNCL : dims == 5 ? kNCDHW : kND; }

NPUStorageImpl* npu_storage(const Tensor& tensor) {
  return dynamic_cast<NPUStorageImpl*>(tensor.storage().unsafeGetStorageImpl());
}

int32_t format_of(const Tensor& tensor) {
  const NPUStorageImpl* storage = tensor.has_storage() ? npu_storage(tensor) : nullptr;
  const bool set = storage != nullptr && storage->format() != NPUStorageImpl::kNoFormat;
  return set ? storage->format() : base_format(tensor.dim());
}

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Elements of the storage of a tensor of `sizes` in `format`. Blocks are 16 x 16, 16 x 32 for types of one byte.
int64_t storage_elements(IntArrayRef sizes, int32_t format, size_t itemsize) {
  constexpr int64_t kBlock = 16;
  const int64_t c0 = itemsize == 1 ? 32 : 16;
  const auto size = [&](size_t i) { return i < sizes.size() ? sizes[i] : int64_t{1}; };
  switch (format) {
    case kNC1HWC0:
      return size(0) * blocks(size(1), c0) * size(2) * size(3) * c0;
    case kFractalZ:
      return blocks(size(1), c0) * size(2) * size(3) * blocks(size(0), kBlock) * kBlock * c0;
    case kNDC1HWC0:
      return size(0) * size(2) * blocks(size(1), c0) * size(3) * size(4) * c0;
    case kFractalZ3D:
      return size(2) * blocks(size(1), c0) * size(3) * size(4) * blocks(size(0), kBlock) * kBlock * c0;
    case kFractalNZ: {
      if (sizes.empty()) return kBlock * c0;
      const size_t rank = sizes.size();
      const int64_t rows = rank > 1 ? sizes[rank - 2] : 1;
      int64_t elements = blocks(rows, kBlock) * kBlock * blocks(sizes[rank - 1], c0) * c0;
      for (size_t i = 0; i + 2 < rank; ++i) elements *= sizes[i];
      return elements;
    }
    default:
      return c10::multiply_integers(sizes);
  }
}

// An uninitialised contiguous tensor in a format.
Tensor empty_in(IntArrayRef sizes, const at::TensorOptions& options, int32_t format) {
  Tensor tensor = at::empty(sizes, options);
  if (tensor.is_meta() || npu_storage(tensor) == nullptr) return tensor;  // while tracing
  const size_t itemsize = tensor.dtype().itemsize();
  const size_t bytes = static_cast<size_t>(storage_elements(sizes, format, itemsize)) * itemsize;
  NPUStorageImpl* storage = npu_storage(tensor);
  if (bytes > storage->nbytes()) storage->resize_bytes(bytes);
  if (format != base_format(tensor.dim())) storage->set_format(format);
  return tensor;
}

// From NC1HWC0, whose dimensions are named, ND gives the names back: NCHW.
int32_t target_format(const Tensor& input, int64_t format) {
  const int32_t target = checked_format(format);
  return target == kND && format_of(input) == kNC1HWC0 ? kNCHW : target;
}

// ---- Casting

Tensor format_cast(const Tensor& input, int64_t acl_format) {
  const int32_t format = target_format(input, acl_format);
  if (format == format_of(input)) return input.alias();
  return empty_in(input.sizes(), input.options(), format).copy_(input);
}
Tensor format_cast_shape(const Tensor& input, int64_t acl_format) {
  checked_format(acl_format);
  return at::empty_like(input, at::MemoryFormat::Contiguous);
}
Tensor format_cast_aclnn(const Tensor& input, int64_t acl_format, int64_t) { return format_cast(input, acl_format); }
Tensor format_cast_aclnn_shape(const Tensor& input, int64_t acl_format, int64_t) {
  return format_cast_shape(input, acl_format);
}
Tensor format_cast_input(const Tensor& input, int64_t acl_format, int64_t, int64_t) {
  return format_cast(input, acl_format);
}
Tensor format_cast_input_shape(const Tensor& input, int64_t acl_format, int64_t, int64_t) {
  return format_cast_shape(input, acl_format);
}

variable_list format_cast_derivative(Context<format_cast>& c) { return {c.grad(0)}; }
variable_list format_cast_aclnn_derivative(Context<format_cast_aclnn>& c) { return {c.grad(0)}; }
variable_list format_cast_input_derivative(Context<format_cast_input>& c) { return {c.grad(0)}; }

int64_t get_npu_format(const Tensor& input) { return format_of(input); }
int64_t get_npu_format_shape(const Tensor& input) { return base_format(input.dim()); }

using Integers = std::optional<int64_t>;

Tensor format_cast_public(const Tensor& input, int64_t acl_format, Integers, Integers) {
  return Operator<"_npu_format_cast", format_cast>::call(input, acl_format);
}
Tensor format_cast_like(const Tensor& input, const Tensor& dst, Integers, Integers) {
  return Operator<"_npu_format_cast", format_cast>::call(input, Operator<"get_npu_format", get_npu_format>::call(dst));
}

// The tensor keeps its identity and gets a storage of the new format.
Tensor& format_cast_(Tensor& input, int64_t acl_format, Integers, Integers) {
  const Tensor cast = format_cast(input, acl_format);
  if (!cast.is_alias_of(input)) input.set_(cast);
  return input;
}
Tensor& format_cast_shape_(Tensor& input, int64_t acl_format, Integers, Integers) {
  checked_format(acl_format);
  return input;
}
// Takes the values of `src`, keeps the format.
Tensor& format_cast_from_(Tensor& input, const Tensor& src, Integers, Integers) { return input.copy_(src); }

int64_t get_storage_size(const Tensor& input) {
  return static_cast<int64_t>(input.storage().nbytes() / input.dtype().itemsize());
}

Tensor empty_with_format(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory, int64_t acl_format,
                         Integers) {
  const auto options = at::TensorOptions()
                           .dtype(dtype)
                           .layout(layout)
                           .device(device.value_or(at::Device(kNPU)))
                           .pinned_memory(pin_memory);
  return empty_in(size, options, checked_format(acl_format));
}
Tensor unsafe_empty_with_format(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                                std::optional<at::Device> device, std::optional<bool> pin_memory, int64_t acl_format,
                                bool) {
  return empty_with_format(size, dtype, layout, device, pin_memory, acl_format, std::nullopt);
}

// ---- Types

Tensor copied_as(const Tensor& input, at::ScalarType type) {
  return input.to(type, /*non_blocking=*/false, /*copy=*/true);
}

Tensor scalar_type_cast(const Tensor& input, at::ScalarType type) { return copied_as(input, type); }
variable_list scalar_type_cast_derivative(Context<scalar_type_cast>& c) {
  const Tensor input = c.input<0>();
  return {Operator<"_npu_dtype_cast_backward", scalar_type_cast>::call(c.grad(0), input.scalar_type())};
}
Tensor dtype_cast(const Tensor& input, int64_t dtype, Integers) {
  return copied_as(input, type_of_number(dtype, "npu_dtype_cast"));
}
Tensor dtype_cast_backward(const Tensor& grad, at::ScalarType type, Integers, Integers) {
  return copied_as(grad, type);
}
variable_list dtype_cast_derivative(Context<dtype_cast>& c) {
  const Tensor input = c.input<0>();
  return {Operator<"npu_dtype_cast_backward", dtype_cast_backward>::call(c.grad(0), input.scalar_type(), std::nullopt,
                                                                         std::nullopt)};
}
Tensor& dtype_cast_(Tensor& input, const Tensor& src) { return input.copy_(src); }

// ---- Memory

Tensor& copy_memory_(Tensor& input, const Tensor& src, bool non_blocking) {
  CANN_CHECK_OP(input.scalar_type() == src.scalar_type() && input.sizes().equals(src.sizes()),
                "copy_memory_: both tensors must have the same type and sizes, but have ", input.scalar_type(), " ",
                input.sizes(), " and ", src.scalar_type(), " ", src.sizes());
  return input.copy_(src, non_blocking);
}
Tensor& copy_memory_shape_(Tensor& input, const Tensor&, bool) { return input; }

// `dst` becomes a view of src's memory from element `index` on. Returns 0.
int64_t change_data_ptr(const Tensor& dst, const Tensor& src, int64_t index) {
  CANN_CHECK_OP(dst.is_contiguous() && index >= 0 && dst.scalar_type() == src.scalar_type(),
                "npu_change_data_ptr: dst must be contiguous, of src's type, and index not negative");
  CANN_CHECK_OP(src.storage_offset() + index + dst.numel() <= get_storage_size(src),
                "npu_change_data_ptr: ", dst.numel(), " elements from ", index, " on do not fit src's storage of ",
                get_storage_size(src));
  Tensor target = dst;
  target.set_(src.storage(), src.storage_offset() + index, dst.sizes(), dst.strides());
  return 0;
}

// Loads into a cache on hardware; nothing here can be nearer than it is.
void prefetch(const Tensor&, const OptionalTensor&, int64_t max_size, int64_t offset) {
  CANN_CHECK_OP(max_size > 0, "npu_prefetch: max_size must be positive, but got ", max_size);
  CANN_CHECK_OP(offset >= 0, "npu_prefetch: offset must not be negative, but got ", offset);
}

void register_types_and_memory(Registry& ops) {
  ops.add<"_npu_dtype_cast", scalar_type_cast>("(Tensor input, ScalarType dtype) -> Tensor")
      .autograd<scalar_type_cast_derivative, Saves<0>>();
  ops.add<"_npu_dtype_cast_backward", scalar_type_cast>("(Tensor grad, ScalarType dtype) -> Tensor");
  ops.add<"npu_dtype_cast", dtype_cast>("(Tensor input, int dtype, int? input_dtype=None) -> Tensor")
      .autograd<dtype_cast_derivative, Saves<0>>();
  ops.add<"npu_dtype_cast_", dtype_cast_>("(Tensor(a!) input, Tensor src) -> Tensor(a!)");
  ops.add<"npu_dtype_cast_backward", dtype_cast_backward>(
      "(Tensor grad, ScalarType dtype, int? grad_dtype=None, int? input_dtype=None) -> Tensor");
  ops.add_native<"copy_memory_", copy_memory_, copy_memory_shape_>(
      "(Tensor(a!) input, Tensor src, bool non_blocking=False) -> Tensor(a!)");
  ops.add_native<"npu_change_data_ptr", change_data_ptr>("(Tensor dst, Tensor src, int index) -> int");
  ops.add_native<"npu_prefetch", prefetch>("(Tensor input, Tensor? dependency, int max_size, int offset=0) -> ()");
}

}  // namespace

void register_format(Registry& ops) {
  ops.add_native<"_npu_format_cast", format_cast, format_cast_shape>("(Tensor input, int acl_format) -> Tensor")
      .autograd<format_cast_derivative, Saves<>>();
  ops.add_native<"_npu_format_cast.aclnn", format_cast_aclnn, format_cast_aclnn_shape>(
         "(Tensor input, int acl_format, int customize_dtype) -> Tensor")
      .autograd<format_cast_aclnn_derivative, Saves<>>();
  ops.add_native<"_npu_format_cast.input_dtype", format_cast_input, format_cast_input_shape>(
         "(Tensor input, int acl_format, int customize_dtype, int input_dtype) -> Tensor")
      .autograd<format_cast_input_derivative, Saves<>>();
  ops.add_composite<"npu_format_cast", format_cast_public>(
      "(Tensor input, int acl_format, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor");
  ops.add_composite<"npu_format_cast.Tensor", format_cast_like>(
      "(Tensor input, Tensor dst, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor");
  ops.add_native<"npu_format_cast_.acl_format", format_cast_, format_cast_shape_>(
      "(Tensor(a!) input, int acl_format, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor(a!)");
  ops.add_native<"npu_format_cast_", format_cast_from_>(
      "(Tensor(a!) input, Tensor src, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor(a!)");
  ops.add_native<"get_npu_format", get_npu_format, get_npu_format_shape>("(Tensor input) -> int");
  ops.add_native<"get_storage_size", get_storage_size>("(Tensor input) -> int");
  ops.add_composite<"empty_with_format", empty_with_format>(
      "(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, int "
      "acl_format=2, int? base_addr_aligned_kb=None) -> Tensor");
  ops.add_composite<"unsafe_empty_with_format", unsafe_empty_with_format>(
      "(int[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, int "
      "acl_format=2, bool keep_format=False) -> Tensor");
  register_types_and_memory(ops);
}

}  // namespace cann::aten::npu
