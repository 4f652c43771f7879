// Pointwise operators: arithmetic, comparison, activation and their backward forms, filling.

#include "aten/direct.h"
#include "aten/fast_pointwise.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_pointwise(torch::Library& aten) {
  namespace ops = at::_ops;
  using enum kernels::Pointwise;
  register_fast<fast::Add<1>, ops::add_Tensor, ops::add__Tensor>(aten);
  register_fast<fast::Add<-1>, ops::sub_Tensor, ops::sub__Tensor>(aten);
  register_fast<fast::Binary<kMul, kMulScalar>, ops::mul_Tensor, ops::mul__Tensor, ops::mul_Scalar, ops::mul__Scalar>(
      aten);
  register_fast<fast::Binary<kDiv, kDivScalar>, ops::div_Tensor, ops::div__Tensor>(aten);
  register_fast<fast::Unary<kNeg>, ops::neg, ops::neg_>(aten);
  register_fast<fast::Unary<kAbs>, ops::abs, ops::abs_>(aten);
  register_fast<fast::Unary<kReciprocal>, ops::reciprocal, ops::reciprocal_>(aten);
  register_fast<fast::Square, ops::pow_Tensor_Scalar>(aten);
  register_fast<fast::Relu, ops::relu, ops::relu_>(aten);
  register_fast<fast::ReluBackward, ops::threshold_backward>(aten);
  register_fast<fast::Clamp, ops::clamp>(aten);
  register_fast<fast::Fill, ops::fill__Scalar, ops::zero_>(aten);
  register_fast<fast::Clone, ops::clone>(aten);
  register_direct<ops::maximum, ops::minimum>(aten);
  register_direct<ops::add_out, ops::add_Scalar, ops::add__Scalar, ops::sub_out, ops::rsub_Scalar, ops::mul_out,
                  ops::div_out, ops::div_Tensor_mode, ops::div__Tensor_mode>(aten);
  register_direct<ops::addcmul, ops::addcmul_, ops::addcmul_out, ops::addcdiv, ops::addcdiv_, ops::addcdiv_out,
                  ops::lerp_Scalar, ops::lerp_Tensor, ops::lerp__Scalar, ops::lerp__Tensor>(aten);
  register_direct<ops::conj_physical_, ops::sign, ops::sqrt, ops::sqrt_, ops::exp, ops::exp_, ops::exp2, ops::expm1,
                  ops::log, ops::log_, ops::log2, ops::log1p, ops::rsqrt, ops::rsqrt_, ops::sin, ops::cos, ops::tan,
                  ops::asin, ops::acos, ops::atan, ops::sinh, ops::cosh, ops::tanh, ops::tanh_, ops::sigmoid,
                  ops::sigmoid_, ops::erf, ops::erfc, ops::floor, ops::floor_, ops::ceil, ops::round, ops::trunc,
                  ops::frac>(aten);
  register_direct<ops::pow__Scalar, ops::pow_Tensor_Tensor, ops::pow_Scalar, ops::atan2, ops::fmod_Tensor,
                  ops::remainder_Scalar, ops::remainder_Tensor, ops::fmax, ops::fmin, ops::hypot, ops::xlogy_Tensor>(
      aten);
  register_direct<ops::clamp_, ops::clamp_Tensor, ops::clamp_min, ops::clamp_min_, ops::clamp_max, ops::clamp_max_,
                  ops::nan_to_num, ops::where_self, ops::logit>(aten);
  register_direct<ops::elu, ops::leaky_relu, ops::leaky_relu_, ops::softplus, ops::hardtanh, ops::hardtanh_,
                  ops::hardswish, ops::hardsigmoid, ops::mish, ops::_prelu_kernel, ops::threshold,
                  ops::log_sigmoid_forward>(aten);
  register_direct<ops::tanh_backward, ops::sigmoid_backward, ops::elu_backward, ops::leaky_relu_backward,
                  ops::softplus_backward, ops::hardtanh_backward, ops::hardswish_backward, ops::hardsigmoid_backward,
                  ops::mish_backward, ops::log_sigmoid_backward>(aten);
  register_direct<ops::eq_Scalar, ops::eq_Tensor, ops::ne_Scalar, ops::ne_Tensor, ops::lt_Scalar, ops::lt_Tensor,
                  ops::le_Scalar, ops::le_Tensor, ops::gt_Scalar, ops::gt_Tensor, ops::ge_Scalar, ops::ge_Tensor>(aten);
  register_direct<ops::logical_and, ops::logical_and_out, ops::logical_not, ops::logical_not_out, ops::logical_or,
                  ops::logical_or_out, ops::logical_xor_out, ops::bitwise_and_Tensor, ops::bitwise_or_Tensor,
                  ops::bitwise_xor_Tensor, ops::bitwise_not, ops::isnan, ops::isinf, ops::isposinf, ops::isneginf>(
      aten);
  register_direct<ops::fill__Tensor, ops::complex, ops::polar, ops::masked_fill_Scalar, ops::masked_fill__Scalar,
                  ops::masked_fill_Tensor, ops::masked_fill__Tensor>(aten);
  register_direct<ops::normal_, ops::uniform_, ops::bernoulli__float, ops::random_, ops::random__from, ops::random__to,
                  ops::exponential_, ops::bernoulli_out>(aten);
  register_direct<ops::arange_start_out, ops::linspace_out, ops::eye_m_out>(aten);
}

}  // namespace cann::aten
