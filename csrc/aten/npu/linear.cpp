// Products that are compositions of PyTorch's: linear, batched, and convolutions under their npu names. They run as
// operators on npu tensors, so that they take whichever product kernel the device has.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

// A bias of another type than the input's, as autocast leaves it.
OptionalTensor bias_like(const OptionalTensor& bias, const Tensor& input) {
  return has(bias) ? OptionalTensor(bias->to(input.scalar_type())) : std::nullopt;
}

// ---- input (..., K) @ weight (N, K)^T + bias

Tensor linear(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return at::linear(input, weight, bias_like(bias, input));
}

std::tuple<Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& input, const Tensor& weight) {
  const Tensor g = grad.reshape_symint({-1, grad.sym_size(-1)});
  return {at::matmul(grad, weight), at::mm(g.t(), input.reshape_symint({-1, input.sym_size(-1)}))};
}

variable_list linear_derivative(Context<linear>& c) {
  const Tensor& grad = c.grad(0);
  auto [d_input, d_weight] = Operator<"npu_linear_backward", linear_backward>::call(grad, c.input<0>(), c.input<1>());
  const OptionalTensor bias = c.input<2>();
  return {d_input, d_weight,
          has(bias) ? grad.reshape_symint({-1, grad.sym_size(-1)}).sum(0).to(bias->scalar_type()) : Tensor()};
}

// ---- Batched product; output_sizes, when given, is the shape of the result

Tensor bmm_v2(const Tensor& input, const Tensor& mat2, IntArrayRef output_sizes) {
  const Tensor product = at::matmul(input, mat2);
  return output_sizes.empty() ? product : product.reshape(output_sizes);
}
Tensor bmm_v2_mat1_backward(const Tensor& grad, const Tensor&, const Tensor& mat2, c10::SymIntArrayRef size) {
  return at::sum_to(at::matmul(grad, mat2.transpose(-2, -1)), size);
}
Tensor bmm_v2_mat2_backward(const Tensor& grad, const Tensor& mat1, const Tensor&, c10::SymIntArrayRef size) {
  return at::sum_to(at::matmul(mat1.transpose(-2, -1), grad), size);
}
variable_list bmm_v2_derivative(Context<bmm_v2>& c) {
  const Tensor mat1 = c.input<0>(), mat2 = c.input<1>();
  Tensor grad = c.grad(0);
  if (!c.input<2>().empty()) {
    c10::SymDimVector sizes = sizes_of(mat1);
    sizes.back() = mat2.sym_size(-1);
    grad = grad.reshape_symint(sizes);
  }
  return {Operator<"npu_bmm_v2_mat1_backward", bmm_v2_mat1_backward>::call(grad, mat1, mat2, mat1.sym_sizes()),
          Operator<"npu_bmm_v2_mat2_backward", bmm_v2_mat2_backward>::call(grad, mat1, mat2, mat2.sym_sizes())};
}

// ---- Convolutions

using Mask3 = std::array<bool, 3>;
using Gradients3 = std::tuple<Tensor, Tensor, Tensor>;

Tensor convolution(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  return at::convolution(input, weight, bias_like(bias, input), stride, padding, dilation, /*transposed=*/false,
                         c10::DimVector(stride.size(), 0), groups);
}
Tensor& convolution_out(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                        IntArrayRef padding, IntArrayRef dilation, int64_t groups, Tensor& out) {
  const Tensor result = convolution(input, weight, bias, stride, padding, dilation, groups);
  out.resize_(result.sizes());
  return out.copy_(result);
}
void check_batches(const Tensor& input, const Tensor& grad, const char* op) {
  CANN_CHECK_OP(input.dim() == grad.dim() && input.dim() > 1 && input.sym_size(0) == grad.sym_size(0), op,
                ": the gradient must be of as many samples as input, which has sizes ", input.sym_sizes(),
                ", but has sizes ", grad.sym_sizes());
}
Gradients3 convolution_backward(const Tensor& input, const Tensor& grad, const Tensor& weight, IntArrayRef stride,
                                IntArrayRef padding, IntArrayRef dilation, int64_t groups, Mask3 mask) {
  check_batches(input, grad, "npu_convolution_backward");
  return at::convolution_backward_symint(grad, input, weight, at::OptionalSymIntArrayRef({grad.sym_size(1)}),
                                         c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
                                         c10::fromIntArrayRefSlow(dilation), /*transposed=*/false,
                                         c10::SymDimVector(stride.size(), 0), groups, mask);
}
variable_list convolution_derivative(Context<convolution>& c) {
  const OptionalTensor bias = c.input<2>();
  auto [dx, dw, db] = Operator<"npu_convolution_backward", convolution_backward>::call(
      c.input<0>(), c.grad(0), c.input<1>(), c.input<3>(), c.input<4>(), c.input<5>(), c.input<6>(),
      {c.needs(0), c.needs(1), has(bias) && c.needs(2)});
  return {dx, dw, has(bias) && db.defined() ? db.to(bias->scalar_type()) : Tensor()};
}

Tensor convolution_transpose(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, IntArrayRef padding,
                             IntArrayRef output_padding, IntArrayRef stride, IntArrayRef dilation, int64_t groups) {
  return at::convolution(input, weight, bias_like(bias, input), stride, padding, dilation, /*transposed=*/true,
                         output_padding, groups);
}
Gradients3 convolution_transpose_backward(const Tensor& input, const Tensor& grad, const Tensor& weight,
                                          IntArrayRef padding, IntArrayRef output_padding, IntArrayRef stride,
                                          IntArrayRef dilation, int64_t groups, Mask3 mask) {
  check_batches(input, grad, "npu_convolution_transpose_backward");
  return at::convolution_backward_symint(grad, input, weight, at::OptionalSymIntArrayRef({grad.sym_size(1)}),
                                         c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
                                         c10::fromIntArrayRefSlow(dilation), /*transposed=*/true,
                                         c10::fromIntArrayRefSlow(output_padding), groups, mask);
}
variable_list convolution_transpose_derivative(Context<convolution_transpose>& c) {
  const OptionalTensor bias = c.input<2>();
  auto [dx, dw, db] = Operator<"npu_convolution_transpose_backward", convolution_transpose_backward>::call(
      c.input<0>(), c.grad(0), c.input<1>(), c.input<3>(), c.input<4>(), c.input<5>(), c.input<6>(), c.input<7>(),
      {c.needs(0), c.needs(1), has(bias) && c.needs(2)});
  return {dx, dw, has(bias) && db.defined() ? db.to(bias->scalar_type()) : Tensor()};
}

// PyTorch's older convolutions, whose gradients are those of convolution.
Gradients3 dilated2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, IntArrayRef,
                              IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, Mask3 mask) {
  return convolution_backward(input, grad, weight, stride, padding, dilation, /*groups=*/1, mask);
}
Gradients3 slow_transpose2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, IntArrayRef,
                                     IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding,
                                     IntArrayRef dilation, Mask3 mask) {
  return convolution_transpose_backward(input, grad, weight, padding, output_padding, stride, dilation, /*groups=*/1,
                                        mask);
}
std::tuple<Tensor, Tensor> depthwise2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                IntArrayRef, IntArrayRef stride, IntArrayRef padding,
                                                IntArrayRef dilation, std::array<bool, 2> mask) {
  auto [dx, dw, db] =
      convolution_backward(input, grad, weight, stride, padding, dilation, input.size(1), {mask[0], mask[1], false});
  return {dx, dw};
}

// ---- Products with something behind them

// A batched product of permuted operands, permuted again. perm_y is (1, 0, 2) unless given: (M, B, N). A split factor
// above 1 makes that (factor, M, B * N / factor).
Tensor transpose_batchmatmul(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                             const OptionalTensor& scale, at::OptionalIntArrayRef perm_x1,
                             at::OptionalIntArrayRef perm_x2, at::OptionalIntArrayRef perm_y,
                             std::optional<int64_t> batch_split_factor) {
  constexpr const char* kOp = "npu_transpose_batchmatmul";
  CANN_CHECK_SUPPORTED(!has(scale), kOp, ": scale, which makes the result int8, is not implemented");
  CANN_CHECK_OP(input.dim() == 3 && weight.dim() == 3, kOp,
                ": input and weight must have 3 dimensions, but have sizes ", input.sym_sizes(), " and ",
                weight.sym_sizes());
  const auto permuted = [](const Tensor& t, at::OptionalIntArrayRef perm) {
    return perm.has_value() && !perm->empty() ? t.permute(*perm) : t;
  };
  Tensor y = at::bmm(permuted(input, perm_x1), permuted(weight, perm_x2));
  if (has(bias)) y = y.add(bias->to(y.scalar_type()));
  y = perm_y.has_value() && !perm_y->empty() ? y.permute(*perm_y) : y.transpose(0, 1);
  const int64_t factor = batch_split_factor.value_or(1);
  if (factor > 1) {
    CANN_CHECK_OP(y.sym_size(1) % factor == 0, kOp, ": batch_split_factor ", factor, " must divide the batch of ",
                  y.sym_size(1));
    y = y.reshape_symint({y.sym_size(0), factor, y.sym_size(1) / factor * y.sym_size(2)}).transpose(0, 1);
  }
  return y.contiguous();
}

Tensor fused_matmul(const Tensor& x1, const Tensor& x2, const OptionalTensor& bias, const OptionalTensor& x3,
                    std::string_view fused_op) {
  constexpr const char* kOp = "npu_fused_matmul";
  Tensor y = at::matmul(x1, x2);
  if (has(bias)) y = y.add(bias->to(y.scalar_type()));
  if (fused_op.empty()) return y;
  if (fused_op == "16cast32") return y.to(at::kFloat);
  if (fused_op == "relu") return y.relu();
  if (fused_op == "gelu_erf") return at::gelu(y);
  if (fused_op == "gelu_tanh") return at::gelu(y, "tanh");
  CANN_CHECK_OP(fused_op == "add" || fused_op == "mul", kOp,
                ": fused_op_type must be one of '', add, mul, relu, "
                "gelu_erf, gelu_tanh and 16cast32, but got '",
                fused_op, "'");
  CANN_CHECK_OP(has(x3), kOp, ": fused_op_type '", fused_op, "' needs x3");
  return fused_op == "add" ? y.add(*x3) : y.mul(*x3);
}

// ---- Schemas that several operators share

constexpr const char* kConvolution =
    "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups) -> Tensor";
constexpr const char* kConvolutionOut =
    "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups, *, "
    "Tensor(a!) out) -> Tensor(a!)";
constexpr const char* kConvolutionBackward =
    "(Tensor input, Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)";
constexpr const char* kTranspose =
    "(Tensor input, Tensor weight, Tensor? bias, int[] padding, int[] output_padding, int[] stride, int[] dilation, "
    "int groups) -> Tensor";
constexpr const char* kTransposeBackward =
    "(Tensor input, Tensor grad_output, Tensor weight, int[] padding, int[] output_padding, int[] stride, int[] "
    "dilation, int groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)";

}  // namespace

void register_linear(Registry& ops) {
  ops.add_native<"npu_linear", linear>("(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
      .autograd<linear_derivative, Saves<0, 1, 2>>()
      .autocast_lower();
  ops.add_native<"npu_linear_backward", linear_backward>(
      "(Tensor grad, Tensor input, Tensor weight) -> (Tensor, Tensor)");
  ops.add_native<"npu_bmmV2", bmm_v2>("(Tensor input, Tensor mat2, int[] output_sizes) -> Tensor")
      .autograd<bmm_v2_derivative, Saves<0, 1>>()
      .autocast_lower();
  ops.add_native<"npu_bmm_v2_mat1_backward", bmm_v2_mat1_backward>(
      "(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor");
  ops.add_native<"npu_bmm_v2_mat2_backward", bmm_v2_mat2_backward>(
      "(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor");

  ops.add_native<"npu_convolution", convolution>(kConvolution)
      .autograd<convolution_derivative, Saves<0, 1, 2>>()
      .autocast_lower();
  ops.add_native<"npu_convolution_backward", convolution_backward>(kConvolutionBackward);
  ops.add_native<"npu_conv2d", convolution>(kConvolution).autocast_lower();
  ops.add_native<"npu_conv2d.out", convolution_out>(kConvolutionOut);
  ops.add_native<"npu_conv2d_backward", convolution_backward>(kConvolutionBackward);
  ops.add_native<"npu_conv3d", convolution>(kConvolution).autocast_lower();
  ops.add_native<"npu_conv3d.out", convolution_out>(kConvolutionOut);
  ops.add_native<"npu_conv3d_backward", convolution_backward>(
      "(Tensor input, Tensor grad, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, bool[3] "
      "output_mask) -> (Tensor, Tensor, Tensor)");

  ops.add_native<"npu_convolution_transpose", convolution_transpose>(kTranspose)
      .autograd<convolution_transpose_derivative, Saves<0, 1, 2>>()
      .autocast_lower();
  ops.add_native<"npu_convolution_transpose_backward", convolution_transpose_backward>(
      "(Tensor input, Tensor grad, Tensor weight, int[] padding, int[] output_padding, int[] stride, int[] dilation, "
      "int groups, bool[3] grad_input_mask) -> (Tensor, Tensor, Tensor)");
  ops.add_native<"npu_conv_transpose2d", convolution_transpose>(kTranspose).autocast_lower();
  ops.add_native<"npu_conv_transpose2d_backward", convolution_transpose_backward>(kTransposeBackward);
  ops.add_native<"npu_conv_transpose3d_backward", convolution_transpose_backward>(kTransposeBackward);
  ops.add_native<"slow_conv_dilated2d_backward", dilated2d_backward>(
      "(Tensor grad_output, Tensor input, Tensor weight, int[2] kernel_size, int[2] stride, int[2] padding, int[2] "
      "dilation, bool[3] output_mask) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)");
  ops.add_native<"slow_conv_transpose2d_backward", slow_transpose2d_backward>(
      "(Tensor grad_output, Tensor input, Tensor weight, int[2] kernel_size, int[2] stride, int[2] padding, int[2] "
      "output_padding, int[2] dilation, bool[3] output_mask) -> (Tensor grad_input, Tensor grad_weight, Tensor "
      "grad_bias)");
  ops.add_native<"_conv_depthwise2d_backward", depthwise2d_backward>(
      "(Tensor grad_output, Tensor input, Tensor weight, int[2] kernel_size, int[2] stride, int[2] padding, int[2] "
      "dilation, bool[2] output_mask) -> (Tensor grad_input, Tensor grad_weight)");

  ops.add_native<"npu_transpose_batchmatmul", transpose_batchmatmul>(
      "(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? scale=None, int[]? perm_x1=None, int[]? "
      "perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1) -> Tensor");
  ops.add_native<"npu_fused_matmul", fused_matmul>(
      "(Tensor x1, Tensor x2, *, Tensor? bias=None, Tensor? x3=None, str fused_op_type='') -> Tensor");
}

}  // namespace cann::aten::npu
