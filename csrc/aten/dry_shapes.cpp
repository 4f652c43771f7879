#include "aten/dry_shapes.h"

#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MetaFunctions.h>
#include <ATen/OpMathType.h>
#include <ATen/Operators.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <string>

namespace cann::aten {
namespace {

using at::Tensor;

// By name, since an operator's C++ name tells overloads apart, which the library's functions do not.
template <class Op>
void put(torch::Library& meta, typename Op::schema* function) {
  std::string name = Op::name;
  if (*Op::overload_name != '\0') name.append(".").append(Op::overload_name);
  meta.impl(name.c_str(), torch::CppFunction(function));
}

// at::meta:: functions check arguments, compute shapes and allocate nothing; they are not looked up in the dispatcher.
#define CANN_SHAPE(op, function) put<at::_ops::op>(meta, at::meta::function)
#define CANN_FUNCTION_AND_OUT(op) (CANN_SHAPE(op, op), CANN_SHAPE(op##_out, op##_outf))
#define CANN_ALL_FORMS(op) (CANN_FUNCTION_AND_OUT(op), CANN_SHAPE(op##_, op##_))
#define CANN_OVERLOADS(op, overload) \
  (CANN_SHAPE(op##_##overload, op), CANN_SHAPE(op##__##overload, op##_), CANN_SHAPE(op##_##overload##_out, op##_outf))
// An overload whose out= form has a name of its own.
#define CANN_OVERLOAD(op, overload, out) \
  (CANN_SHAPE(op##_##overload, op), CANN_SHAPE(op##__##overload, op##_), CANN_SHAPE(op##_##out, op##_outf))
#define CANN_GRADIENT(op) (CANN_SHAPE(op, op), CANN_SHAPE(op##_grad_input, op##_outf))

void put_unary(torch::Library& meta) {
  CANN_ALL_FORMS(acos), CANN_ALL_FORMS(acosh), CANN_ALL_FORMS(asin), CANN_ALL_FORMS(asinh), CANN_ALL_FORMS(atan);
  CANN_ALL_FORMS(atanh), CANN_ALL_FORMS(bitwise_not), CANN_ALL_FORMS(ceil), CANN_ALL_FORMS(cos), CANN_ALL_FORMS(cosh);
  CANN_ALL_FORMS(erf), CANN_ALL_FORMS(erfc), CANN_ALL_FORMS(erfinv), CANN_ALL_FORMS(exp), CANN_ALL_FORMS(exp2);
  CANN_ALL_FORMS(expm1), CANN_ALL_FORMS(floor), CANN_ALL_FORMS(frac), CANN_ALL_FORMS(log), CANN_ALL_FORMS(log10);
  CANN_ALL_FORMS(log1p), CANN_ALL_FORMS(log2), CANN_ALL_FORMS(neg), CANN_ALL_FORMS(reciprocal), CANN_ALL_FORMS(round);
  CANN_ALL_FORMS(rsqrt), CANN_ALL_FORMS(sgn), CANN_ALL_FORMS(sigmoid), CANN_ALL_FORMS(sign), CANN_ALL_FORMS(sin);
  CANN_ALL_FORMS(sinh), CANN_ALL_FORMS(sqrt), CANN_ALL_FORMS(tan), CANN_ALL_FORMS(tanh), CANN_ALL_FORMS(trunc);
  CANN_ALL_FORMS(elu), CANN_ALL_FORMS(gelu), CANN_ALL_FORMS(hardsigmoid), CANN_ALL_FORMS(leaky_relu);
  CANN_ALL_FORMS(mish), CANN_ALL_FORMS(silu), CANN_ALL_FORMS(threshold), CANN_ALL_FORMS(cumsum);
  CANN_FUNCTION_AND_OUT(softplus), CANN_FUNCTION_AND_OUT(glu);
  CANN_SHAPE(zero_, zero_), CANN_SHAPE(fill__Scalar, fill_);
  CANN_SHAPE(fill__Tensor, fill_), CANN_SHAPE(normal_, normal_), CANN_SHAPE(uniform_, uniform_);
  CANN_GRADIENT(elu_backward), CANN_GRADIENT(gelu_backward), CANN_GRADIENT(hardsigmoid_backward);
  CANN_GRADIENT(leaky_relu_backward), CANN_GRADIENT(sigmoid_backward), CANN_GRADIENT(silu_backward);
  CANN_GRADIENT(softplus_backward), CANN_GRADIENT(tanh_backward), CANN_GRADIENT(threshold_backward);
}

void put_binary(torch::Library& meta) {
  CANN_OVERLOAD(add, Tensor, out), CANN_OVERLOAD(sub, Tensor, out), CANN_OVERLOAD(mul, Tensor, out);
  CANN_OVERLOAD(div, Tensor, out), CANN_OVERLOAD(div, Tensor_mode, out_mode);
  CANN_OVERLOAD(copysign, Tensor, out);
  CANN_OVERLOADS(eq, Scalar), CANN_OVERLOADS(eq, Tensor), CANN_OVERLOADS(ne, Scalar), CANN_OVERLOADS(ne, Tensor);
  CANN_OVERLOADS(lt, Scalar), CANN_OVERLOADS(lt, Tensor), CANN_OVERLOADS(le, Scalar), CANN_OVERLOADS(le, Tensor);
  CANN_OVERLOADS(gt, Scalar), CANN_OVERLOADS(gt, Tensor), CANN_OVERLOADS(ge, Scalar), CANN_OVERLOADS(ge, Tensor);
  CANN_OVERLOADS(bitwise_and, Tensor), CANN_OVERLOADS(bitwise_or, Tensor), CANN_OVERLOADS(bitwise_xor, Tensor);
  CANN_OVERLOADS(fmod, Tensor), CANN_OVERLOADS(remainder, Tensor), CANN_OVERLOADS(lerp, Scalar);
  CANN_OVERLOADS(lerp, Tensor), CANN_OVERLOADS(clamp, Tensor), CANN_OVERLOADS(clamp_min, Tensor);
  CANN_OVERLOADS(clamp_max, Tensor), CANN_ALL_FORMS(clamp), CANN_ALL_FORMS(clamp_min), CANN_ALL_FORMS(clamp_max);
  CANN_ALL_FORMS(addcmul), CANN_ALL_FORMS(addcdiv), CANN_ALL_FORMS(atan2), CANN_ALL_FORMS(hypot);
  CANN_FUNCTION_AND_OUT(maximum), CANN_FUNCTION_AND_OUT(minimum), CANN_FUNCTION_AND_OUT(fmax);
  CANN_FUNCTION_AND_OUT(fmin), CANN_FUNCTION_AND_OUT(mse_loss), CANN_FUNCTION_AND_OUT(smooth_l1_loss);
  CANN_SHAPE(pow_Tensor_Tensor, pow), CANN_SHAPE(pow_Tensor_Tensor_out, pow_outf), CANN_SHAPE(pow__Tensor, pow_);
  CANN_SHAPE(pow_Tensor_Scalar, pow), CANN_SHAPE(pow_Tensor_Scalar_out, pow_outf), CANN_SHAPE(pow__Scalar, pow_);
  CANN_SHAPE(pow_Scalar, pow), CANN_SHAPE(pow_Scalar_out, pow_outf), CANN_SHAPE(xlogy_Tensor, xlogy);
}

void put_reductions(torch::Library& meta) {
  CANN_SHAPE(sum_dim_IntList, sum), CANN_SHAPE(sum_IntList_out, sum_outf), CANN_SHAPE(mean_dim, mean);
  CANN_SHAPE(mean_out, mean_outf), CANN_FUNCTION_AND_OUT(amax), CANN_FUNCTION_AND_OUT(amin);
  CANN_FUNCTION_AND_OUT(argmax), CANN_FUNCTION_AND_OUT(argmin), CANN_SHAPE(all, all), CANN_SHAPE(all_dim, all);
  CANN_SHAPE(any, any), CANN_SHAPE(any_dim, any), CANN_SHAPE(max_dim, max), CANN_SHAPE(min_dim, min);
  CANN_SHAPE(prod_dim_int, prod), CANN_FUNCTION_AND_OUT(linalg_vector_norm), CANN_FUNCTION_AND_OUT(aminmax);
  CANN_SHAPE(sort_stable, sort);
  CANN_FUNCTION_AND_OUT(_softmax), CANN_FUNCTION_AND_OUT(_log_softmax);
  CANN_SHAPE(_softmax_backward_data, _softmax_backward_data);
  CANN_SHAPE(_log_softmax_backward_data, _log_softmax_backward_data);
  CANN_SHAPE(nll_loss_forward, nll_loss_forward_symint), CANN_SHAPE(nll_loss_backward, nll_loss_backward_symint);
}

void put_products_and_indexing(torch::Library& meta) {
  CANN_FUNCTION_AND_OUT(mm), CANN_FUNCTION_AND_OUT(bmm), CANN_ALL_FORMS(addmm), CANN_ALL_FORMS(baddbmm);
  CANN_ALL_FORMS(addmv), CANN_FUNCTION_AND_OUT(cat), CANN_FUNCTION_AND_OUT(gather), CANN_SHAPE(index_Tensor, index);
  CANN_ALL_FORMS(index_add), CANN_ALL_FORMS(index_copy), CANN_ALL_FORMS(scatter_add);
  CANN_OVERLOADS(scatter, src), CANN_OVERLOADS(scatter, value);
  CANN_FUNCTION_AND_OUT(max_pool2d_with_indices), CANN_GRADIENT(max_pool2d_with_indices_backward);
  CANN_FUNCTION_AND_OUT(avg_pool2d), CANN_GRADIENT(avg_pool2d_backward);
  CANN_SHAPE(arange_start_out, arange_outf);
}

// ---- Operators whose shapes only their kernels know

Tensor pointwise(std::initializer_list<Tensor> inputs, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype(dtype).add_owned_output(Tensor());
  for (const Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build().output();
}

Tensor absolute(const Tensor& self) { return pointwise({self}, c10::toRealValueType(self.scalar_type())); }
Tensor test(const Tensor& self) { return pointwise({self}, at::kBool); }
Tensor test_both(const Tensor& self, const Tensor& other) { return pointwise({self, other}, at::kBool); }
Tensor relu(const Tensor& self) { return pointwise({self}, self.scalar_type()); }

Tensor& relu_(Tensor& self) { return self; }
Tensor& hardtanh_(Tensor& self, const at::Scalar& /*least*/, const at::Scalar& /*most*/) { return self; }

template <class Value>
Tensor& masked_fill_(Tensor& self, const Tensor& mask, const Value& /*value*/) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  TORCH_CHECK(at::is_expandable_to(mask.sizes(), self.sizes()), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape of a mask of shape ", mask.sizes());
  return self;
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  return pointwise({condition, self, other}, at::result_type(self, other));
}

Tensor mse_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t /*reduction*/) {
  return pointwise({grad, self, target}, at::result_type(self, target));
}

Tensor largest(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  return at::empty({}, self.options());
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector, but got one of ", index.dim(),
                    " dimensions");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index but got: ", index.scalar_type());
  dim = at::maybe_wrap_dim(dim, self.dim());
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  return at::empty(sizes, self.options());
}

Tensor embedding_backward(const Tensor& grad, const Tensor& /*indices*/, int64_t rows, int64_t /*padding*/,
                          bool /*scale*/) {
  return at::empty({rows, grad.size(-1)}, grad.options());
}

std::tuple<Tensor, Tensor> dropout(const Tensor& input, double /*p*/, std::optional<bool> /*train*/) {
  return {at::empty_like(input), at::empty_like(input, input.options().dtype(at::kBool))};
}

Tensor dropout_backward(const Tensor& grad, const Tensor& mask, double /*scale*/) {
  return pointwise({grad, mask}, grad.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, at::IntArrayRef shape,
                                              const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                                              double /*eps*/) {
  const auto fits = [&](const std::optional<Tensor>& given) {
    return !given.has_value() || !given->defined() || given->sizes() == shape;
  };
  const int64_t rows = input.dim() - static_cast<int64_t>(shape.size());
  TORCH_CHECK(!shape.empty() && rows >= 0 && input.sizes().slice(static_cast<size_t>(rows)) == shape && fits(weight) &&
                  fits(bias),
              "Given normalized_shape=", shape, ", expected input with shape [*, ", shape,
              "] and weight and bias of shape ", shape, ", but got input of size ", input.sizes());
  std::vector<int64_t> reduced = input.sizes().vec();
  std::fill(reduced.begin() + rows, reduced.end(), 1);
  const auto statistics = input.options().dtype(at::toOpMathType(input.scalar_type()));
  return {at::empty_like(input, at::MemoryFormat::Contiguous), at::empty(reduced, statistics),
          at::empty(reduced, statistics)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& /*grad*/, const Tensor& input,
                                                       at::IntArrayRef shape, const Tensor& /*mean*/,
                                                       const Tensor& /*rstd*/, const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  const auto gradient = [&](const std::optional<Tensor>& of, bool wanted) {
    return wanted && of.has_value() && of->defined() ? at::empty(shape, of->options()) : Tensor();
  };
  return {mask[0] ? at::empty_like(input, at::MemoryFormat::Contiguous) : Tensor(), gradient(weight, mask[1]),
          gradient(bias, mask[2])};
}

// Operators whose schemas have symbolic sizes, which these functions of the library do not take.
void put_with_plain_sizes(torch::Library& meta) {
  meta.impl("topk", at::meta::topk);
  meta.impl("tril", at::meta::tril);
  meta.impl("tril_", at::meta::tril_);
  meta.impl("triu", at::meta::triu);
  meta.impl("triu_", at::meta::triu_);
}

void put_our_own(torch::Library& meta) {
  meta.impl("abs", absolute);
  meta.impl("relu", relu);
  meta.impl("relu_", relu_);
  meta.impl("hardtanh_", hardtanh_);
  meta.impl("masked_fill_.Scalar", masked_fill_<at::Scalar>);
  meta.impl("masked_fill_.Tensor", masked_fill_<Tensor>);
  for (const char* name : {"logical_not", "isnan", "isinf"}) meta.impl(name, test);
  for (const char* name : {"logical_and", "logical_or", "logical_xor"}) meta.impl(name, test_both);
  for (const char* name : {"max", "min"}) meta.impl(name, largest);
  meta.impl("where.self", where);
  meta.impl("mse_loss_backward", mse_loss_backward);
  meta.impl("index_select", index_select);
  meta.impl("embedding_dense_backward", embedding_backward);
  meta.impl("native_dropout", dropout);
  meta.impl("native_dropout_backward", dropout_backward);
  meta.impl("native_layer_norm", layer_norm);
  meta.impl("native_layer_norm_backward", layer_norm_backward);
  // FSDP cuts each parameter into a piece per rank, most of them new_empty(0).
  put<at::_ops::new_empty>(meta, at::compositeexplicitautograd::new_empty_symint);
  put<at::_ops::new_zeros>(meta, at::compositeexplicitautograd::new_zeros_symint);
  put<at::_ops::empty_like>(meta, at::compositeexplicitautograd::empty_like);
  put<at::_ops::zeros_like>(meta, at::compositeexplicitautograd::zeros_like);
  put<at::_ops::ones_like>(meta, at::compositeexplicitautograd::ones_like);
}

}  // namespace

void register_dry_shapes(torch::Library& meta) {
  put_unary(meta);
  put_binary(meta);
  put_reductions(meta);
  put_products_and_indexing(meta);
  put_with_plain_sizes(meta);
  put_our_own(meta);
}

}  // namespace cann::aten
